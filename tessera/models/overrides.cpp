#include <tessera/models/overrides.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::models {
namespace {

Value typed(const Value& old, const std::string& key, const std::string& text) {
  const auto fail = [&](const char* kind) -> InputError {
    return InputError(concat("config_overrides: ", key, "=", text, ": ", key, " takes ", kind));
  };
  const auto as_int = parse_int(text);
  const auto as_real = parse_real(text);
  const bool is_bool = text == "true" || text == "false" || text == "True" || text == "False";
  switch (old.kind()) {
    case Value::Kind::boolean:
      if (!is_bool) throw fail("true or false");
      return Value::of(to_lower(text) == "true");
    case Value::Kind::integer:
      if (!as_int) throw fail("an integer");
      return Value::of(*as_int);
    case Value::Kind::real:
      if (!as_real) throw fail("a number");
      return Value::of(*as_real);
    case Value::Kind::string: return Value::of(text);
    case Value::Kind::null:
      if (as_int) return Value::of(*as_int);
      if (as_real) return Value::of(*as_real);
      if (is_bool) return Value::of(to_lower(text) == "true");
      return Value::of(text);
    default: throw fail("no override: it is a list or an object");
  }
}

}  // namespace

Value with_overrides(Value config, const std::string& overrides) {
  if (trim(overrides).empty()) return config;
  for (const std::string& item : split(overrides, ',')) {
    const auto equals = item.find('=');
    if (equals == std::string::npos) throw InputError(concat("config_overrides: \"", item, "\" is not of the form key=value"));
    const std::string key = trim(item.substr(0, equals)), text = trim(item.substr(equals + 1));
    const Value* old = config.find(key);
    if (!old) {
      std::vector<std::string> keys;
      for (const auto& [name, value] : config.members()) keys.push_back(name);
      const auto near = nearest(key, keys);
      throw InputError(concat("config_overrides: the configuration has no \"", key, "\"", near ? concat("; did you mean \"", *near, "\"?") : ""));
    }
    Value fresh = typed(*old, key, text);
    fresh.set_where({std::make_shared<const std::string>("--config_overrides"), 0, 0});
    config.set(key, std::move(fresh));
  }
  return config;
}

}  // namespace tessera::models
