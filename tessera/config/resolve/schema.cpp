#include <tessera/config/resolve/schema.h>

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>

#include <algorithm>
#include <cmath>

namespace tessera::config {
namespace {

Value bound(double value, bool integer) {
  return integer ? Value::of(static_cast<std::int64_t>(value)) : Value::of(value);
}

/// Whether the rule allows the value; a default may be outside the range, as "not given".
bool can_be_given(const Field& field, const Value& value) {
  RunConfig scratch;
  const std::string text = value.is_string() ? value.as_string() : dump_json(value, -1);
  return !text.empty() && !field.set(scratch, text);
}

void add_words(const Field& field, Value& schema) {
  std::vector<Value> words;
  for (const std::string& word : field.rule.words) words.push_back(Value::of(word));
  for (const auto& [theirs, ours] : field.rule.synonyms) words.push_back(Value::of(std::string(theirs)));
  // case-insensitive, so that other systems' spelling is accepted
  for (const std::string& word : field.rule.words) {
    std::string upper = word;
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (upper != word) words.push_back(Value::of(upper));
  }
  if (can_be_given(field, Value::of("true"))) words.push_back(Value::of(true));
  if (can_be_given(field, Value::of("false")) || can_be_given(field, Value::of("no")))
    words.push_back(Value::of(false));
  if (!field.rule.several) return schema.set("enum", Value::make_array(std::move(words)));
  const Value word = Value::make_object({{"enum", Value::make_array(std::move(words))}});
  // as a list, or as comma-separated text
  schema.set("anyOf",
             Value::make_array({word, Value::make_object({{"type", Value::of("array")}, {"items", word}}),
                                Value::make_object({{"type", Value::of("string")}, {"pattern", Value::of(",")}})}));
}

void add_range(const Field& field, Value& schema, bool integer) {
  const Rule& rule = field.rule;
  if (std::isfinite(rule.least))
    schema.set(rule.above_least ? "exclusiveMinimum" : "minimum", bound(rule.least, integer));
  if (std::isfinite(rule.most)) schema.set(rule.below_most ? "exclusiveMaximum" : "maximum", bound(rule.most, integer));
}

Value schema_of(const Field& field) {
  Value schema = Value::make_object({{"description", Value::of(std::string(field.help))}});
  const Value by_default = field.get(RunConfig{});
  const bool integer = std::holds_alternative<std::int64_t& (*)(RunConfig&)>(field.access);
  if (field.is_boolean()) {
    schema.set("type", Value::of("boolean"));
  } else if (integer || std::holds_alternative<double& (*)(RunConfig&)>(field.access)) {
    schema.set("type", Value::of(integer ? "integer" : "number"));
    add_range(field, schema, integer);
  } else if (!field.rule.words.empty()) {
    add_words(field, schema);
  } else {
    const std::string_view form = field.rule.shown_as;
    const bool object = form.find("JSON") != std::string_view::npos || form.find("K=V") != std::string_view::npos;
    const bool list = form.ends_with("...") || field.name == "fsdp";
    std::vector<Value> types = {Value::of("string")};
    if (object || list) types.push_back(Value::of(object ? "object" : "array"));
    schema.set("type", types.size() == 1 ? types[0] : Value::make_array(types));
  }
  if (field.is_boolean() || can_be_given(field, by_default)) schema.set("default", by_default);
  return schema;
}

}  // namespace

Value file_schema() {
  Value properties = Value::make_object();
  for (const Section section : all_sections) {
    Value members = Value::make_object();
    for (const Field& field : fields()) {
      if (field.section != section) continue;
      members.set(std::string(field.name), schema_of(field));
      properties.set(
          std::string(field.name),
          Value::make_object(
              {{"$ref", Value::of(concat("#/properties/", section_key(section), "/properties/", field.name))}}));
    }
    properties.set(std::string(section_key(section)),
                   Value::make_object({{"type", Value::of("object")},
                                       {"description", Value::of(std::string(section_title(section)))},
                                       {"properties", std::move(members)},
                                       {"additionalProperties", Value::of(false)}}));
  }
  properties.set("$schema",
                 Value::make_object({{"type", Value::of("string")}}));  // used by editors; the reader ignores it
  return Value::make_object({{"$schema", Value::of("https://json-schema.org/draft/2020-12/schema")},
                             {"title", Value::of("Tessera's configuration file (--config)")},
                             {"type", Value::of("object")},
                             {"properties", std::move(properties)},
                             {"additionalProperties", Value::of(false)}});
}

}  // namespace tessera::config
