#include <tessera/models/decoders/phi3.h>

#include <ATen/ATen.h>

#include <tessera/nn/nn.h>

namespace tessera::models {

PackedAttention::PackedAttention(const ModelSpec& c, std::int64_t index)
    : heads(c, index), query_heads(c.heads), key_heads(c.key_heads) {
  const std::int64_t queries = c.heads * c.head_size, keys = c.key_heads * c.head_size;
  o_proj = register_module("o_proj", std::make_shared<Linear>(queries, c.hidden, false));
  qkv_proj = register_module("qkv_proj", std::make_shared<Linear>(c.hidden, queries + 2 * keys, false));
}

at::Tensor PackedAttention::forward(const at::Tensor& x, const LlamaContext& context) {
  const at::Tensor qkv = qkv_proj->forward(x, context.between_layers());  // this rank's heads
  const std::int64_t all = query_heads + 2 * key_heads, own = qkv.size(2) / heads.size;
  const at::Tensor by_head = qkv.view({qkv.size(0), qkv.size(1), own, heads.size});
  const std::int64_t queries = query_heads * own / all, keys = key_heads * own / all;
  const std::int64_t first_head = nn::first_own(qkv_proj->weight, 0) / heads.size;
  return o_proj->forward(heads.mixed(by_head.narrow(2, 0, queries), by_head.narrow(2, queries, keys),
                                     by_head.narrow(2, queries + keys, keys), context, first_head, is_training()),
                         context.random);
}

PackedMlp::PackedMlp(std::int64_t hidden, std::int64_t intermediate, nn::GateKind kind) : kind(kind) {
  gate_up_proj = register_module("gate_up_proj", std::make_shared<Linear>(hidden, 2 * intermediate, false));
  down_proj = register_module("down_proj", std::make_shared<Linear>(intermediate, hidden, false));
}

at::Tensor PackedMlp::forward(const at::Tensor& x, const ForwardContext& context) {
  const at::Tensor both = gate_up_proj->forward(x, context.between_layers());
  const std::int64_t half = both.size(2) / 2;
  return down_proj->forward(nn::gated(kind, both.narrow(2, 0, half), both.narrow(2, half, half)), context.random);
}

}  // namespace tessera::models
