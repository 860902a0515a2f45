#pragma once
/// \file
/// GPT-2 (Radford et al. 2019) with a language-model head, following transformers/models/gpt2/modeling_gpt2.py.
/// B batch, T tokens, C = n_embd, H = n_head, V = vocab_size.

#include <tessera/architectures/spec.h>
#include <tessera/models/activation.h>
#include <tessera/models/causal_lm.h>
#include <tessera/models/layers.h>
#include <tessera/models/model_parts.h>
#include <memory>
#include <optional>

namespace tessera::models {

using architectures::ModelSpec;

struct Gpt2Attention : torch::nn::Module {
  Gpt2Attention(const ModelSpec& spec, std::int64_t index);
  /// x [B, T, C] -> [B, T, C] *without* c_proj's bias, which the block adds together with the residual.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context);

  std::shared_ptr<Conv1D> c_attn, c_proj;  ///< [C, 3 C], [C, C]
  std::int64_t index, head_size;
  double scale, dropout;
};

struct Gpt2Mlp : torch::nn::Module {
  explicit Gpt2Mlp(const ModelSpec& spec);
  /// x [B, T, C] -> [B, T, C] without c_proj's bias.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context);

  std::shared_ptr<Conv1D> c_fc, c_proj;  ///< [C, n_inner], [n_inner, C]
  Activation activation;
};

struct Gpt2Block : torch::nn::Module {
  Gpt2Block(const ModelSpec& spec, std::int64_t index);
  /// x [B, T, C] -> [B, T, C]; depending on context.stage only the attention or only the MLP is added to x.
  at::Tensor forward(const at::Tensor& x, const std::shared_ptr<const ForwardContext>& context);
  void drop_attention();
  void drop_mlp();

  std::shared_ptr<LayerNorm> ln_1, ln_2;  ///< null, like the next members, if that half is in another stage
  std::shared_ptr<Gpt2Attention> attn;
  std::shared_ptr<Gpt2Mlp> mlp;
  std::int64_t index;
  double dropout;
};

struct Gpt2Model : torch::nn::Module {
  explicit Gpt2Model(const ModelSpec& spec);
  /// ids int64 [B, T] -> hidden states after ln_f [B, T, C], or the output of context.stage.
  at::Tensor forward(const at::Tensor& ids, ForwardContext context = {});
  /// Drops the modules that are in none of `parts`. `tied`: the end also needs wte.
  void drop_all_but(const std::vector<layout::StagePart>& parts, bool tied);

  std::shared_ptr<Table> wte, wpe;            ///< [V, C], [n_positions, C]
  std::vector<std::shared_ptr<Gpt2Block>> h;  ///< null, like ln_f, if in another stage
  std::shared_ptr<LayerNorm> ln_f;
  double dropout;
  architectures::Multipliers multipliers;

 private:
  at::Tensor embedded(const at::Tensor& ids, const ForwardContext& context);
};

class Gpt2 : public CausalLm {
 public:
  /// Initializes weights from `seed` by Hugging Face's rule (_init_weights: N(0, initializer_range), the residual
  /// projections c_proj divided by sqrt(2 n_layer), biases 0, norms 1), or by architectures/mup.h; without a seed they
  /// stay uninitialized.
  Gpt2(const Value& hf_config, std::optional<std::uint64_t> seed);

  std::vector<ModelPart> parts() const override;

  std::shared_ptr<Gpt2Model> transformer;
  std::shared_ptr<Table> lm_head;  ///< null when tied to wte

 protected:
  void drop_all_but(const std::vector<layout::StagePart>& parts) override;
  at::Tensor hidden(const at::Tensor& ids, ForwardContext context) override;
  const at::Tensor& head() const override { return lm_head ? lm_head->weight : transformer->wte->weight; }

 private:
  void initialise(std::uint64_t seed);
};

}  // namespace tessera::models
