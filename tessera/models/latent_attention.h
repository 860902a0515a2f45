#pragma once
/// \file
/// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1), following
/// transformers/models/deepseek_v3/modeling_deepseek_v3.py: queries, and keys with values, each pass through a narrow
/// latent; all heads share one rotated part of the key.

#include <tessera/models/llama.h>

#include <memory>

namespace tessera::models {

/// H heads; N, R, V: sizes of a head's unrotated part, its rotated part, and its value.
struct LatentAttention : Attention {
  LatentAttention(const ModelSpec& spec, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context) override;
  const at::Tensor& first_weight() const override { return kv_a_proj_with_mqa->weight; }

  std::shared_ptr<Linear> q_proj;                          ///< [H (N + R), C]; null: through the latent
  std::shared_ptr<Linear> q_a_proj, q_b_proj;              ///< [rank of q, C], [H (N + R), rank of q]; null: directly
  std::shared_ptr<Linear> kv_a_proj_with_mqa;              ///< [rank of k and v + R, C]
  std::shared_ptr<Linear> kv_b_proj;                       ///< [H (N + V), rank of k and v]
  std::shared_ptr<Linear> o_proj;                          ///< [C, H V]
  std::shared_ptr<RmsNorm> q_a_layernorm, kv_a_layernorm;  ///< null: no norm of the latents
  architectures::Latent sizes;
  std::int64_t index, heads;
  double dropout;

 private:
  at::Tensor rotated(const at::Tensor& x, const LlamaContext& context) const;
};

}  // namespace tessera::models
