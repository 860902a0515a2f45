// The JSON Schema of our own file accepts and refuses the same files as the reader.

#include <tessera/config/resolve/schema.h>

#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>

#include <algorithm>
#include <regex>
#include <set>

namespace tessera::config {
namespace {

/// The subset of JSON Schema draft 2020-12 that the schema uses. Any other keyword fails the test.
class Validator {
 public:
  explicit Validator(const Value& root) : root_(root) {}

  bool accepts(const Value& schema, const Value& value) const {
    for (const auto& [keyword, rule] : schema.members())
      if (!holds(keyword, rule, schema, value)) return false;
    return true;
  }

 private:
  bool holds(const std::string& keyword, const Value& rule, const Value& schema, const Value& value) const {
    static const std::set<std::string> annotations = {"$schema", "title", "description", "default"};
    if (annotations.contains(keyword)) return true;
    if (keyword == "$ref") return accepts(resolve(rule.as_string()), value);
    if (keyword == "type") {
      if (rule.is_string()) return is_a(rule.as_string(), value);
      return std::any_of(rule.items().begin(), rule.items().end(),
                         [&](const Value& type) { return is_a(type.as_string(), value); });
    }
    if (keyword == "enum")
      return std::any_of(rule.items().begin(), rule.items().end(),
                         [&](const Value& one) { return dump_json(one) == dump_json(value); });
    if (keyword == "anyOf")
      return std::any_of(rule.items().begin(), rule.items().end(),
                         [&](const Value& one) { return accepts(one, value); });
    if (keyword == "items") {
      if (!value.is_array()) return true;
      return std::all_of(value.items().begin(), value.items().end(),
                         [&](const Value& item) { return accepts(rule, item); });
    }
    if (keyword == "pattern")
      return !value.is_string() || std::regex_search(value.as_string(), std::regex(rule.as_string()));
    if (keyword == "minimum") return !value.is_number() || value.as_real() >= rule.as_real();
    if (keyword == "maximum") return !value.is_number() || value.as_real() <= rule.as_real();
    if (keyword == "exclusiveMinimum") return !value.is_number() || value.as_real() > rule.as_real();
    if (keyword == "exclusiveMaximum") return !value.is_number() || value.as_real() < rule.as_real();
    if (keyword == "properties") {
      if (!value.is_object()) return true;
      return std::all_of(value.members().begin(), value.members().end(), [&](const auto& member) {
        const Value* inner = rule.find(member.first);
        return inner == nullptr || accepts(*inner, member.second);
      });
    }
    if (keyword == "additionalProperties") {
      if (rule.as_bool() || !value.is_object()) return true;
      return std::all_of(value.members().begin(), value.members().end(),
                         [&](const auto& member) { return schema.at("properties").find(member.first) != nullptr; });
    }
    ADD_FAILURE() << "keyword " << keyword << " is not supported by this test";
    return false;
  }

  const Value& resolve(const std::string& reference) const {
    const Value* at = &root_;
    for (const std::string& step : split(reference, '/'))
      if (step != "#") at = &at->at(step);
    return *at;
  }

  static bool is_a(const std::string& type, const Value& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.kind() == Value::Kind::boolean;
    if (type == "number") return value.is_number();
    if (type == "integer")
      return value.is_number() && value.as_real() == static_cast<double>(static_cast<std::int64_t>(value.as_real()));
    ADD_FAILURE() << "type " << type;
    return false;
  }

  const Value& root_;
};

bool schema_accepts(const std::string& yaml) {
  static const Value schema = file_schema();
  return Validator(schema).accepts(schema, parse_yaml(yaml, "file.yaml"));
}

bool reader_accepts(const std::string& yaml) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "file.yaml");
  write_file_atomically(path, yaml);
  Problems problems;
  resolve_flags({"--config", path}, problems,
                [](const std::string&) -> std::optional<std::string> { return std::nullopt; });
  return problems.lines.empty();
}

TEST(Schema, AgreesWithTheReader) {
  const std::pair<const char*, bool> cases[] = {
      {"learning_rate: 3.0e-4\n", true},
      {"optimization:\n  learning_rate: 3.0e-4\n  max_steps: 10\n  bf16: true\n", true},
      {"sharding:\n  strategy: full_shard\n  cpu_offload: all\n", true},
      {"strategy: FULL_SHARD\n", true},
      {"optim: adamw_torch\n", true},
      {"output:\n  logging_steps: 0.1\n  save_strategy: epoch\n", true},
      {"gradient_checkpointing_kwargs: {every: 2}\n", true},
      {"lr_scheduler_kwargs: num_cycles=2\n", true},
      {"transformer_layer_cls_to_wrap: [GPT2Block, GPT2MLP]\n", true},
      {"reshard_after_forward: true\n", true},
      {"greater_is_better: false\n", true},
      {"report_to: csv\n", true},
      {"report_to: tensorboard,csv\n", true},
      {"report_to: [csv, tensorboard]\n", true},
      {"report_to: cvs\n", false},
      {"report_to: [csv, mlfow]\n", false},
      {"$schema: schema.json\nlearning_rate: 1.0e-3\n", true},
      {"learning_rte: 3.0e-4\n", false},
      {"optimisation:\n  learning_rate: 1.0e-3\n", false},
      {"sharding:\n  learning_rate: 1.0e-3\n", false},
      {"learning_rate: fast\n", false},
      {"learning_rate: -1\n", false},
      {"adam_beta1: 1\n", false},
      {"zero_stage: 4\n", false},
      {"max_steps: 1.5\n", false},
      {"bf16: maybe\n", false},
      {"strategy: full_shrad\n", false},
      {"min_loss_scale: 0\n", false},
      {"save_steps: -1\n", false},
      {"max_steps: [1]\n", false},
  };
  for (const auto& [yaml, right] : cases) {
    EXPECT_EQ(schema_accepts(yaml), right) << yaml;
    EXPECT_EQ(reader_accepts(yaml), right) << yaml;
  }
}

TEST(Schema, EverySettingHasAKindAndAHelp) {
  const Value schema = file_schema();
  EXPECT_EQ(schema.at("$schema").as_string(), "https://json-schema.org/draft/2020-12/schema");
  std::size_t count = 0;
  for (const Section section : all_sections)
    for (const auto& [name, setting] : schema.at("properties").at(section_key(section)).at("properties").members()) {
      EXPECT_TRUE(setting.find("type") != nullptr || setting.find("enum") != nullptr ||
                  setting.find("anyOf") != nullptr)
          << name;
      EXPECT_FALSE(setting.at("description").as_string().empty()) << name;
      if (const Value* by_default = setting.find("default")) {
        EXPECT_TRUE(Validator(schema).accepts(setting, *by_default)) << name << ": the default";
      }
      ++count;
    }
  EXPECT_EQ(count, fields().size());
}

TEST(Schema, LetsThroughWhatConvertWrites) {
  const auto none = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--fsdp", "full_shard", "--bf16"},
                                             {"--zero_stage", "2", "--learning_rate", "1e-3"},
                                             {"--lr_scheduler_type", "cosine", "--output_dir", "out"}})
    EXPECT_TRUE(
        schema_accepts(file_text(convert(resolve_flags(flags, none), FileKind::tessera).file, FileKind::tessera)))
        << flags[1];
}

}  // namespace
}  // namespace tessera::config
