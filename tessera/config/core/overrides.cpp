#include <tessera/config/core/overrides.h>

#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace tessera::config {
namespace {

Value typed(const std::string& text) {
  const std::string word = to_lower(text);
  if (word == "null" || word == "none") return {};
  if (word == "true" || word == "false") return Value::of(word == "true");
  if (const auto integer = parse_int(text)) return Value::of(*integer);
  if (const auto real = parse_real(text); real && std::isfinite(*real)) return Value::of(*real);
  return Value::of(text);
}

bool is_key(const std::string& key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

/// Describes, for an error, the type that a replacement of `old` must have; nullptr if `fresh` has it.
const char* expected_kind(const Value& old, const Value& fresh) {
  using Kind = Value::Kind;
  switch (old.kind()) {
    case Kind::boolean:
      return fresh.kind() == Kind::boolean ? nullptr : "true or false";
    case Kind::integer:
      return fresh.kind() == Kind::integer ? nullptr : "an integer";
    case Kind::real:
      return fresh.is_number() ? nullptr : "a number";
    case Kind::string:
      return fresh.is_string() ? nullptr : "text";
    case Kind::null:
      return nullptr;
    default:
      return "no override, since it is a list or an object";
  }
}

}  // namespace

std::vector<std::pair<std::string, Value>> parse_overrides(std::string_view text, const std::string& flag) {
  if (trim(text).empty()) return {};
  if (trim(text).front() == '{') return parse_json(text, flag).members();
  std::vector<std::pair<std::string, Value>> pairs;
  const auto file = std::make_shared<const std::string>(flag);
  for (const std::string& part : split(text, ',')) {
    const auto fail = [&](const std::string& what) {
      return InputError(concat(flag, ": '", trim(part), "' ", what, " (expected key=value,key=value)"));
    };
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) throw fail("has no '='");
    const std::string key = trim(part.substr(0, equals)), written = trim(part.substr(equals + 1));
    if (!is_key(key)) throw fail("does not begin with a key");
    if (written.empty()) throw fail("has no value");
    if (std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first == key; }))
      throw fail(concat("sets ", key, " a second time"));
    Value value = typed(written);
    value.set_where({file, 0, 0});
    pairs.emplace_back(key, std::move(value));
  }
  return pairs;
}

Value with_overrides(Value config, const std::string& overrides) {
  for (const auto& [key, fresh] : parse_overrides(overrides)) {
    const Value* old = config.find(key);
    if (!old && key == "mtp_num_layers") {  // several families support it, but no config.json contains it by default
      config.set(key, fresh);
      architectures::prediction_depths(config);
      continue;
    }
    if (!old) {
      std::vector<std::string> keys;
      for (const auto& [name, value] : config.members()) keys.push_back(name);
      const auto near = nearest(key, keys);
      throw InputError(concat("config_overrides: the configuration has no \"", key, "\"",
                              near ? concat("; did you mean \"", *near, "\"?") : ""));
    }
    if (const char* expected = expected_kind(*old, fresh))
      throw InputError(concat("config_overrides: ", key, "=", dump_json(fresh, -1), ": ", key, " takes ", expected));
    config.set(key, fresh);
  }
  return config;
}

}  // namespace tessera::config
