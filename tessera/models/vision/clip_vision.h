#pragma once
/// \file
/// models/vision/: components of models with image input.
///
/// The vision tower of CLIP (Radford et al. 2021), following transformers/models/clip/modeling_clip.py
/// (CLIPVisionModel). N images, C hidden_size, S image_size, P patch_size, L = (S / P)^2 patches.

#include <tessera/architectures/spec.h>
#include <tessera/models/layers.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::models {

using architectures::Tower;

struct ClipVisionEmbeddings : torch::nn::Module {
  explicit ClipVisionEmbeddings(const Tower& tower);
  /// pixels [N, 3, S, S] -> [N, 1 + L, C], the class token's row first.
  at::Tensor forward(const at::Tensor& pixels);

  at::Tensor class_embedding;                 ///< [C]
  at::Tensor patch_weight;                    ///< "patch_embedding.weight" [C, 3, P, P]
  std::shared_ptr<Table> position_embedding;  ///< [1 + L, C]
  std::int64_t patch;
};

struct ClipEncoderLayer : torch::nn::Module {
  explicit ClipEncoderLayer(const Tower& tower);
  at::Tensor forward(const at::Tensor& x);  ///< [N, T, C] -> [N, T, C]

  std::shared_ptr<Linear> q_proj, k_proj, v_proj, out_proj;  ///< in "self_attn"
  std::shared_ptr<Linear> fc1, fc2;                          ///< in "mlp"
  std::shared_ptr<LayerNorm> layer_norm1, layer_norm2;
  std::int64_t heads;
  bool quick_gelu;
};

/// Its parameters have CLIPVisionModel's names ("vision_model.encoder.layers.0.self_attn.q_proj.weight").
struct ClipVisionModel : torch::nn::Module {
  explicit ClipVisionModel(const Tower& tower);
  /// The hidden states [N, 1 + L, C] after `blocks` blocks (transformers' hidden_states[blocks], without
  /// post_layernorm); later blocks are not computed. pixels fp32 [N, 3, S, S]; throws InputError for other sizes.
  at::Tensor forward(const at::Tensor& pixels, std::int64_t blocks);

  std::shared_ptr<ClipVisionEmbeddings> embeddings;
  std::shared_ptr<LayerNorm> pre_norm, post_norm;  ///< "pre_layrnorm" (sic), "post_layernorm" (kept but unused)
  std::vector<std::shared_ptr<ClipEncoderLayer>> layers;
  Tower sizes;
};

}  // namespace tessera::models
