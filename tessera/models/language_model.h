#pragma once
/// \file
/// models/: ordinary torch::nn::Modules that know nothing about ranks. This header: the interface between the trainer
/// and a model, causal (causal_lm.h) or an encoder (bert.h).

#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>

#include <tessera/architectures/flops.h>
#include <tessera/architectures/tensors.h>
#include <tessera/base/value.h>
#include <tessera/data/image_input.h>
#include <tessera/data/objective.h>
#include <tessera/layout/schedule/cut.h>
#include <tessera/layout/stages.h>
#include <tessera/layout/state_bytes.h>
#include <tessera/layout/tensor_plan.h>
#include <tessera/models/model_parts.h>
#include <tessera/models/router_log.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tessera::models {

using layout::schedule::BlockFlops;  // costs that determine how runs and plans cut pipelines

/// Parameters and buffers have Hugging Face's names (named_parameters() == keys of model.safetensors, tied ones once;
/// plus LoRA adapters as MODULE.lora_A.weight and MODULE.lora_B.weight).
class LanguageModel : public torch::nn::Module {
 public:
  /// The architecture from config.json, from which the modules are built and which the planner uses.
  const architectures::ModelSpec& spec() const { return spec_; }
  /// Returns the `logits` of transformers' class of the same name, fp32: [B, T, vocab_size()] of a language model, [B,
  /// num_labels()] of a classifier. ids int64 [B, T]. attention_mask [B, T], of any type: nonzero for tokens, 0 for
  /// padding; undefined: no padding. token_type_ids int64 [B, T]: which of two texts a token belongs to; undefined: all
  /// 0. (The hidden states [B, T, C] below the head come from the member module with transformers' name:
  /// Gpt2::transformer, Llama::model, BertForMaskedLM::bert.) Throws InputError for rows longer than max_positions()
  /// and for arguments that the family does not support. Keeps activations for backward unless gradients are off.
  virtual at::Tensor forward(const at::Tensor& ids, const at::Tensor& attention_mask = {},
                             const at::Tensor& token_type_ids = {}) = 0;
  /// Selects the positions of a batch that are scored; the trainer builds batches accordingly.
  virtual data::Objective::Kind objective() const = 0;
  /// Sum of the cross-entropy over the scored positions, times `scale`. fp32 scalar. Throws InputError for rows longer
  /// than max_positions().
  virtual at::Tensor loss(const data::Batch& batch, double scale) = 0;

  /// Smooths losses (nn/label_smoothing.h). Throws Error outside [0, 1).
  void set_label_smoothing(double share);
  /// Adds noise from Uniform(-a, a), a = alpha / sqrt(T C), to the token embeddings in training (NEFTune, Jain et al.
  /// 2023); 0: none. Keyed by position, like dropout (nn/dropout.h).
  void set_embedding_noise(double alpha) { embedding_noise_ = alpha; }

  std::int64_t vocab_size() const { return spec_.vocabulary; }             ///< V: ids are less than V
  std::int64_t max_positions() const { return spec_.longest_sequence(); }  ///< maximum tokens of a row
  /// Image requirements for rows and batches; nullopt: the model has no image input.
  virtual std::optional<data::ImageInput> image_input() const { return std::nullopt; }
  /// config.json in Hugging Face's form for this architecture (unknown members of a loaded config.json are kept).
  const Value& hf_config() const { return hf_config_; }
  /// Modules that LoRA adapts when none are named (PEFT's mapping for the family): {"q_proj", "v_proj"}.
  std::vector<std::string> default_lora_targets() const { return architectures::default_lora_targets(spec_); }
  /// Whether LoRA may adapt the linear map `module`.
  virtual bool may_be_adapted(const std::string& /*module*/) const { return true; }
  /// FLOP of forward and backward per token: 6 N + 12 L H T (N parameters of matrix products; L layers, H heads x head
  /// size, T block_size; docs/performance.md). Includes depths of multi-token prediction, with a head each.
  double flops_per_token(std::int64_t block_size) const;
  /// FLOP per token of a forward pass: of one block in rows of block_size tokens, and of the head.
  BlockFlops block_flops(std::int64_t block, std::int64_t block_size) const {
    return architectures::block_flops(spec_, block, static_cast<double>(block_size));
  }
  double head_flops() const { return architectures::head_flops(spec_); }
  /// Sizes for the memory formulas.
  layout::DecoderShape shape() const { return architectures::shape_of(spec_); }
  /// How tensor parallelism cuts the parameters of the family (tensor_plans.h: with changes by config.json).
  layout::TensorPlan tensor_plan() const { return architectures::tensor_plan(spec_); }
  /// Number of classes of a row classifier; 0: not a classifier.
  std::int64_t num_labels() const { return spec_.labels; }
  /// keep_predictions: whether loss() of a classifier in evaluation mode records the most likely classes.
  /// take_predictions: those recorded since the last call, each int64 [B], in batch order.
  void keep_predictions(bool keep) { keeps_predictions_ = keep; }
  std::vector<at::Tensor> take_predictions() { return std::exchange(predictions_, {}); }
  void set_predictions(std::vector<at::Tensor> predictions) { predictions_ = std::move(predictions); }
  /// True for parameters without weight decay (biases and norms: those of one dimension), by full name.
  bool is_norm_or_bias(const std::string& parameter_name) const;
  /// True for embeddings (of words, positions, token types) and the head over the vocabulary; with of_words_alone,
  /// false for those of positions and types.
  bool is_embedding(const std::string& parameter_name, bool of_words_alone = false) const;

  /// All parts, in the order in which they start: block 0, its attention, its MLP, block 1, ...
  virtual std::vector<ModelPart> parts() const = 0;
  /// Runs parts through `runner`; nullptr: directly.
  void set_part_runner(PartRunner runner);
  /// Sets the attention function for loss() of batches that contain a part of each row (data::Batch::part); without it
  /// such batches throw InputError. Whole rows do not use it.
  void set_attention(nn::AttentionFunction attention);

  /// Mixture of experts: sets the function that computes the layers' experts; empty: nn::experts().
  void set_experts(nn::ExpertsFunction experts);
  /// Expert parallelism: drops all experts except first, first + 1, ... first + count - 1 in every layer; names and
  /// routers, which choose among all experts, are unchanged. Throws InputError for a family without experts and for
  /// numbers out of range.
  void keep_experts(std::int64_t first, std::int64_t count);
  /// The index, within its layer, of the expert that a parameter belongs to; nullopt: not an expert's.
  std::optional<std::int64_t> expert_of(const std::string& parameter) const {
    return architectures::expert_of(spec_, parameter);
  }
  /// How the load of experts is balanced, initially as in config.json; `experts` is 0 without experts. A pass in
  /// training adds the gradients of coefficient * loss * scale (set_auxiliary_scale) to its backward.
  const BalanceOptions& balance() const { return balance_; }
  void set_balance(BalanceOptions balance) { balance_ = std::move(balance); }
  /// Factor of the gradients of auxiliary losses (initially 1): the weight of a micro-batch in the step, times the loss
  /// scale.
  void set_auxiliary_scale(double scale) { auxiliary_scale_ = scale; }
  /// Router statistics of training since the last call.
  RouterStatistics take_router_statistics();

  /// Multi-token prediction: number of extra blocks after the last one, each of which predicts one token further ahead
  /// (decoders/prediction.h); 0: none.
  std::int64_t prediction_depths() const { return spec_.depths; }
  /// Sets the weight with which gradients of loss() in training become those of loss() + weight * (mean of the depths'
  /// losses). 0: the depths are not computed. Initially 0.1, Megatron-LM's --mtp-loss-scaling-factor. Call before
  /// keep_stages(), which keeps the embeddings for depths that are computed.
  void set_prediction_weight(double weight) { prediction_weight_ = weight; }
  /// Whether training computes the depths.
  bool predicts() const { return prediction_weight_ > 0 && prediction_depths() > 0; }
  /// Freezes all parameters of the depths.
  virtual void freeze_predictions() {}
  /// Sums of the depths' losses in training since the last call, each scaled like loss(): fp32 scalars without
  /// gradients. Empty: nothing was computed.
  std::vector<at::Tensor> take_prediction_losses();

  /// Whether a stage may start or end inside a block: requires that attention is added to the residual stream before
  /// the MLP reads it.
  bool blocks_can_be_cut() const { return spec_.blocks_can_be_cut(); }
  /// Pipeline parallelism: keeps only the modules in `parts`; the other parameters are removed, the remaining ones keep
  /// their names. Passes then use run_stage(). Throws InputError for a family that cannot be cut, or whose blocks
  /// cannot, and for parts out of range.
  void keep_stages(const std::vector<layout::StagePart>& parts);
  /// Whether a parameter of this name belongs to the whole model but was removed.
  bool lies_elsewhere(const std::string& parameter) const { return elsewhere_.contains(parameter); }
  const std::set<std::string>& elsewhere() const { return elsewhere_; }    ///< all removed parameters
  std::int64_t elsewhere_elements() const { return elsewhere_elements_; }  ///< number of their elements
  std::int64_t trained_elsewhere() const { return trained_elsewhere_; }  ///< number of their elements that are trained
  /// Runs the pass of one of the parts: computes activations [B, t, C] of `batch` from `input`, the previous part's
  /// output (undefined for the part with the embeddings); for the last part, which has the depths of multi-token
  /// prediction, the batch's loss, as loss() returns it.
  virtual at::Tensor run_stage(const data::Batch& batch, const layout::StagePart& part, const at::Tensor& input,
                               double scale);
  /// The parameter shared by the first and the last part: embeddings that are also the head's matrix, or that the
  /// depths of multi-token prediction read; "": none.
  std::string tied_parameter() const;

 protected:
  /// Reads config.json. Throws InputError for invalid values (architectures/architecture.h).
  explicit LanguageModel(Value hf_config);
  /// Drops the modules that are in none of `parts`.
  virtual void drop_all_but(const std::vector<layout::StagePart>& parts);
  /// Drops all experts except first ... first + count - 1.
  virtual void drop_experts_but(std::int64_t first, std::int64_t count);
  /// Collects the routers' choices during a pass; null: no routers, or not needed.
  std::shared_ptr<RouterLog> router_log(const layout::StagePart* stage, const data::Batch& batch) const;
  const std::shared_ptr<const PartRunner>& part_runner() const { return runner_; }
  /// The initial context of a forward pass of rows, or of parts of rows: everything except documents and a cache.
  ForwardContext context_of(const data::Batch& batch) const;
  /// `scores`: [B, num_labels()].
  void note_prediction(const at::Tensor& scores);
  double prediction_weight() const { return prediction_weight_; }
  void add_prediction_losses(const std::vector<at::Tensor>& losses);
  double label_smoothing() const { return label_smoothing_; }
  double embedding_noise() const { return is_training() ? embedding_noise_ : 0; }
  // allows torch::nn::Sequential to call forward with ids alone
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())}, {2, torch::nn::AnyValue(at::Tensor())})

  Value hf_config_;

 private:
  /// Runs `drop` and records what was removed.
  void drop_layers(const std::function<void()>& drop);

  architectures::ModelSpec spec_;
  std::shared_ptr<const PartRunner> runner_;
  std::shared_ptr<const nn::AttentionFunction> attention_;
  std::shared_ptr<const nn::ExpertsFunction> experts_;
  BalanceOptions balance_;
  double auxiliary_scale_ = 1;
  std::shared_ptr<RouterStatistics> routers_ = std::make_shared<RouterStatistics>();
  std::set<std::string> elsewhere_;
  std::int64_t elsewhere_elements_ = 0, trained_elsewhere_ = 0;
  double label_smoothing_ = 0, embedding_noise_ = 0, prediction_weight_ = 0.1;
  std::vector<at::Tensor> prediction_losses_, predictions_;
  bool keeps_predictions_ = false;
};

}  // namespace tessera::models
