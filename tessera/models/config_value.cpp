#include <tessera/models/config_value.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <vector>

namespace tessera::models {

const Value* given(const Value& json, const char* key) {
  const Value* v = json.find(key);
  return v && !v->is_null() ? v : nullptr;
}

std::int64_t positive(const Value& json, const char* key) {
  const Value& v = json.at(key);
  const std::int64_t n = v.as_int();
  if (n < 1 || n > (std::int64_t{1} << 31))
    throw InputError(concat(v.where().str(), ": \"", key, "\" is ", n, "; it must be between 1 and 2^31"));
  return n;
}

std::int64_t positive_or(const Value& json, const char* key, std::int64_t otherwise) {
  return given(json, key) ? positive(json, key) : otherwise;
}

double positive_real(const Value& json, const char* key, double otherwise) {
  const Value* v = given(json, key);
  if (!v) return otherwise;
  const double x = v->as_real();
  if (!(x > 0)) throw InputError(concat(v->where().str(), ": \"", key, "\" is ", x, "; it must be positive"));
  return x;
}

double probability(const Value& json, const char* key, double otherwise) {
  const Value* v = given(json, key);
  if (!v) return otherwise;
  const double p = v->as_real();
  if (!(p >= 0 && p < 1))
    throw InputError(concat(v->where().str(), ": \"", key, "\" is ", p, "; it must be in [0, 1)"));
  return p;
}

void refuse_other(const Value& json, const char* key, std::initializer_list<const char*> accepted) {
  const Value* v = given(json, key);
  if (!v || std::find(accepted.begin(), accepted.end(), v->as_string()) != accepted.end()) return;
  throw InputError(concat(v->where().str(), ": ", key, " \"", v->as_string(), "\" is not supported; ",
                          join(std::vector<std::string>(accepted.begin(), accepted.end())),
                          accepted.size() == 1 ? " is" : " are"));
}

bool flag(const Value& json, const char* key, bool otherwise) {
  const Value* v = given(json, key);
  return v ? v->as_bool() : otherwise;
}

void require_object(const Value& json) {
  if (!json.is_object()) throw InputError(concat(json.where().str(), ": a model configuration must be a JSON object"));
}

}  // namespace tessera::models
