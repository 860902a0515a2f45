#include <tessera/models/activation.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

#include <string>

namespace tessera::models {
using config::given;

Activation read_activation(const Value& json, const char* key, Activation otherwise) {
  const Value* v = given(json, key);
  if (!v) return otherwise;
  const std::string& name = v->as_string();
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu_tanh;
  if (name == "gelu" || name == "gelu_python") return Activation::gelu_erf;
  if (name == "relu") return Activation::relu;
  if (name == "relu2") return Activation::relu_squared;
  if (name == "silu" || name == "swish") return Activation::silu;
  throw InputError(concat(v->where().str(), ": ", key, " \"", name,
                          "\" is not supported; one of gelu, gelu_new, gelu_pytorch_tanh, relu, relu2, silu is"));
}

}  // namespace tessera::models
