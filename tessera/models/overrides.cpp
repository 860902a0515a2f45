#include <tessera/models/overrides.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/overrides.h>

namespace tessera::models {
namespace {

/// What a member of this kind takes, or null when `fresh` is of it.
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
      return "no override: it is a list or an object";
  }
}

}  // namespace

Value with_overrides(Value config, const std::string& overrides) {
  for (const auto& [key, fresh] : config::parse_overrides(overrides)) {
    const Value* old = config.find(key);
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

}  // namespace tessera::models
