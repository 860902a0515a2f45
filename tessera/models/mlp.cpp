#include <tessera/models/mlp.h>

namespace tessera::models {

GatedMlp::GatedMlp(std::int64_t hidden, std::int64_t intermediate, bool with_bias, nn::GateKind kind) : kind(kind) {
  gate_proj = register_module("gate_proj", std::make_shared<Linear>(hidden, intermediate, with_bias));
  up_proj = register_module("up_proj", std::make_shared<Linear>(hidden, intermediate, with_bias));
  down_proj = register_module("down_proj", std::make_shared<Linear>(intermediate, hidden, with_bias));
}

at::Tensor GatedMlp::forward(const at::Tensor& x, const ForwardContext& context) {
  const nn::RandomPlace place = context.between_layers();
  return down_proj->forward(nn::gated(kind, gate_proj->forward(x, place), up_proj->forward(x, place)), context.random);
}

PlainMlp::PlainMlp(std::int64_t hidden, std::int64_t intermediate, bool with_bias, Activation activation,
                   const std::string& up_name, const std::string& down_name)
    : activation(activation) {
  up = register_module(up_name, std::make_shared<Linear>(hidden, intermediate, with_bias));
  down = register_module(down_name, std::make_shared<Linear>(intermediate, hidden, with_bias));
}

at::Tensor PlainMlp::forward(const at::Tensor& x, const ForwardContext& context) {
  return down->forward(activated(activation, up->project(x, context.between_layers()), up->bias), context.random);
}

}  // namespace tessera::models
