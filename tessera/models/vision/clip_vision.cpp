#include <tessera/models/vision/clip_vision.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/attention/two_way_attention.h>
#include <tessera/nn/nn.h>

#include <cmath>
#include <string>

namespace tessera::models {

ClipVisionEmbeddings::ClipVisionEmbeddings(const Tower& c) : patch(c.patch) {
  class_embedding = register_parameter("class_embedding", at::empty({c.hidden}));
  const auto holder = register_module("patch_embedding", std::make_shared<torch::nn::Module>());
  patch_weight = holder->register_parameter("weight", at::empty({c.hidden, 3, patch, patch}));
  position_embedding = register_module("position_embedding", std::make_shared<Table>(1 + c.patches(), c.hidden));
}

at::Tensor ClipVisionEmbeddings::forward(const at::Tensor& pixels) {
  const at::Tensor patches = at::conv2d(pixels, patch_weight, {}, patch).flatten(2).transpose(1, 2);  // [N, L, C]
  const at::Tensor first = class_embedding.to(patches.scalar_type()).expand({pixels.size(0), 1, -1});
  return at::cat({first, patches}, 1) + position_embedding->weight;
}

ClipEncoderLayer::ClipEncoderLayer(const Tower& c) : heads(c.heads), quick_gelu(c.quick_gelu) {
  const auto attention = register_module("self_attn", std::make_shared<torch::nn::Module>());
  const auto map = [](torch::nn::Module& parent, const char* name, std::int64_t in, std::int64_t out) {
    return parent.register_module(name, std::make_shared<Linear>(in, out, /*with_bias=*/true));
  };
  k_proj = map(*attention, "k_proj", c.hidden, c.hidden);
  v_proj = map(*attention, "v_proj", c.hidden, c.hidden);
  q_proj = map(*attention, "q_proj", c.hidden, c.hidden);
  out_proj = map(*attention, "out_proj", c.hidden, c.hidden);
  layer_norm1 = register_module("layer_norm1", std::make_shared<LayerNorm>(c.hidden, c.eps));
  const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
  fc1 = map(*mlp, "fc1", c.hidden, c.inner);
  fc2 = map(*mlp, "fc2", c.inner, c.hidden);
  layer_norm2 = register_module("layer_norm2", std::make_shared<LayerNorm>(c.hidden, c.eps));
}

at::Tensor ClipEncoderLayer::forward(const at::Tensor& x) {
  const auto normed = [](const at::Tensor& y, const LayerNorm& norm) {
    return nn::layer_norm(y, norm.weight, norm.bias, norm.eps);
  };
  const std::int64_t d = x.size(2) / heads;
  const auto by_head = [&](Linear& map, const at::Tensor& y) {  // [N, T, H, D]
    return map.forward(y, {}).view({y.size(0), y.size(1), heads, d});
  };
  const at::Tensor h = normed(x, *layer_norm1);
  const at::Tensor mixed = nn::two_way_attention(by_head(*q_proj, h), by_head(*k_proj, h), by_head(*v_proj, h), {},
                                                 1 / std::sqrt(static_cast<double>(d)));
  const at::Tensor attended = x + out_proj->forward(mixed, {});
  const at::Tensor inner = fc1->forward(normed(attended, *layer_norm2), {});
  return attended + fc2->forward(quick_gelu ? inner * at::sigmoid(1.702 * inner) : at::gelu(inner), {});
}

ClipVisionModel::ClipVisionModel(const Tower& c) : sizes(c) {
  const auto tower = register_module("vision_model", std::make_shared<torch::nn::Module>());
  embeddings = tower->register_module("embeddings", std::make_shared<ClipVisionEmbeddings>(c));
  pre_norm = tower->register_module("pre_layrnorm", std::make_shared<LayerNorm>(c.hidden, c.eps));
  const auto encoder = tower->register_module("encoder", std::make_shared<torch::nn::Module>());
  const auto list = encoder->register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < c.layers; ++i)
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<ClipEncoderLayer>(c)));
  post_norm = tower->register_module("post_layernorm", std::make_shared<LayerNorm>(c.hidden, c.eps));
}

at::Tensor ClipVisionModel::forward(const at::Tensor& pixels, std::int64_t blocks) {
  const std::int64_t side = sizes.side;
  if (pixels.dim() != 4 || pixels.size(1) != 3 || pixels.size(2) != side || pixels.size(3) != side)
    throw InputError(concat("a batch's images are ", c10::str(pixels.sizes()), "; the vision tower needs [N, 3, ", side,
                            ", ", side, "]: resize and crop them accordingly"));
  TESSERA_CHECK(blocks >= 0 && blocks <= sizes.layers, blocks, " blocks of a vision tower of ", sizes.layers);
  at::Tensor x = nn::layer_norm(embeddings->forward(pixels), pre_norm->weight, pre_norm->bias, pre_norm->eps);
  for (std::int64_t i = 0; i < blocks; ++i) x = layers[static_cast<std::size_t>(i)]->forward(x);
  return x;
}

}  // namespace tessera::models
