#include <tessera/architectures/config_value.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <vector>

namespace tessera::architectures {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 24;

}  // namespace

const Value* given(const Value& json, const char* key) {
  const Value* v = json.find(key);
  return v && !v->is_null() ? v : nullptr;
}

std::int64_t positive(const Value& json, const char* key) {
  const Value& v = json.at(key);
  const std::int64_t n = v.as_int();
  if (n < 1 || n > most)
    throw InputError(concat(v.where().str(), ": \"", key, "\" is ", n, "; it must be in [1, ", most, "]"));
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

void check_part(const Value& json, const char* key, std::int64_t part, std::int64_t whole, const char* what) {
  if (part <= whole) return;
  const Value* v = given(json, key);
  throw InputError(concat((v ? *v : json).where().str(), ": \"", key, "\" is ", part, ", of ", whole, " ", what));
}

std::vector<bool> sparse_layers(const Value& json, std::int64_t layers) {
  const std::int64_t step = positive_or(json, "decoder_sparse_step", 1);
  std::vector<bool> sparse;
  for (std::int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step == 0);
  if (const Value* dense = given(json, "mlp_only_layers"))
    for (const Value& layer : dense->items()) {
      const std::int64_t i = layer.as_int();
      if (i < 0 || i >= layers)
        throw InputError(concat(layer.where().str(), ": mlp_only_layers contains layer ", i, " of ", layers));
      sparse[static_cast<std::size_t>(i)] = false;
    }
  return sparse;
}

}  // namespace tessera::architectures
