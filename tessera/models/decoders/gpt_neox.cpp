#include <tessera/models/decoders/gpt_neox.h>

#include <ATen/ATen.h>

#include <tessera/nn/nn.h>

namespace tessera::models {

NeoxAttention::NeoxAttention(const ModelSpec& c, std::int64_t index) : heads(c, index) {
  const std::int64_t width = c.heads * c.head_size;
  query_key_value = register_module("query_key_value", std::make_shared<Linear>(c.hidden, 3 * width, c.query_bias));
  dense = register_module("dense", std::make_shared<Linear>(width, c.hidden, c.output_bias));
}

at::Tensor NeoxAttention::forward(const at::Tensor& x, const LlamaContext& context) {
  const at::Tensor all = query_key_value->forward(x, context.between_layers());        // this rank's heads
  const at::Tensor by_head = all.view({all.size(0), all.size(1), -1, 3, heads.size});  // [B, T, H, 3, D]
  const std::int64_t first_head = nn::first_own(query_key_value->weight, 0) / (3 * heads.size);
  return dense->forward(
      heads.mixed(by_head.select(3, 0), by_head.select(3, 1), by_head.select(3, 2), context, first_head, is_training()),
      context.random);
}

}  // namespace tessera::models
