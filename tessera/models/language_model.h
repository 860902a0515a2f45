#pragma once
/// \file
/// models/: ordinary torch::nn::Modules that know nothing of ranks. This header: what the trainer asks of a model, be
/// it causal (causal_lm.h) or an encoder (bert.h).

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

using layout::schedule::BlockFlops;  // what pipelines are cut by, in a run as in a plan

/// Parameters and buffers carry Hugging Face's names (named_parameters() == keys of model.safetensors, tied ones once;
/// LoRA adapters besides as MODULE.lora_A.weight and MODULE.lora_B.weight).
class LanguageModel : public torch::nn::Module {
 public:
  /// The architecture, read from config.json: what the modules are built from, and what the planner computes with.
  const architectures::ModelSpec& spec() const { return spec_; }
  /// What the class of this name gives as `logits` in transformers, fp32: [B, T, vocab_size()] of a language model,
  /// [B, num_labels()] of a classifier. ids int64 [B, T]. attention_mask [B, T], of any type: not 0 where a row has
  /// tokens, 0 at its padding; undefined: no padding. token_type_ids int64 [B, T]: which of two texts a token belongs
  /// to; undefined: all 0. (The hidden states [B, T, C] below the head come from the member module that has
  /// transformers' name for it: Gpt2::transformer, Llama::model, BertForMaskedLM::bert.) Throws InputError for rows
  /// longer than max_positions() and for what the family has no use for. Keeps what backward needs, unless gradients
  /// are off.
  virtual at::Tensor forward(const at::Tensor& ids, const at::Tensor& attention_mask = {},
                             const at::Tensor& token_type_ids = {}) = 0;
  /// What is scored of a batch; the trainer makes batches accordingly.
  virtual data::Objective::Kind objective() const = 0;
  /// Sum over the scored positions of the cross-entropy of what is to be predicted, times `scale`. fp32 scalar. Rows
  /// longer than max_positions() throw InputError.
  virtual at::Tensor loss(const data::Batch& batch, double scale) = 0;

  /// From now on losses are smoothed (nn/label_smoothing.h). Throws Error outside [0, 1).
  void set_label_smoothing(double share);
  /// From now on, in training, noise of Uniform(-a, a), a = alpha / sqrt(T C), is added to the embeddings of the tokens
  /// (NEFTune, Jain et al. 2023); 0: none. By place, as dropout (nn/dropout.h).
  void set_embedding_noise(double alpha) { embedding_noise_ = alpha; }

  std::int64_t vocab_size() const { return spec_.vocabulary; }             ///< V: ids are below it
  std::int64_t max_positions() const { return spec_.longest_sequence(); }  ///< the most tokens of a row
  /// What a model that sees images wants of rows and batches; nothing: it sees none.
  virtual std::optional<data::ImageInput> image_input() const { return std::nullopt; }
  /// config.json as Hugging Face writes it for this architecture (unknown members of a loaded config.json are kept).
  const Value& hf_config() const { return hf_config_; }
  /// Modules that LoRA adapts when none are named (PEFT's mapping for the family): {"q_proj", "v_proj"}.
  std::vector<std::string> default_lora_targets() const { return architectures::default_lora_targets(spec_); }
  /// Whether LoRA may adapt the linear map of this name.
  virtual bool may_be_adapted(const std::string& /*module*/) const { return true; }
  /// FLOP of forward and backward per token: 6 N + 12 L H T (N parameters of matrix products; L layers, H heads x head
  /// size, T block_size; docs/performance.md). Depths of multi-token prediction count, with a head each.
  double flops_per_token(std::int64_t block_size) const;
  /// FLOP per token of a forward pass: of one block in rows of block_size tokens, and of the head.
  BlockFlops block_flops(std::int64_t block, std::int64_t block_size) const {
    return architectures::block_flops(spec_, block, static_cast<double>(block_size));
  }
  double head_flops() const { return architectures::head_flops(spec_); }
  /// What the memory formulas need of the architecture.
  layout::DecoderShape shape() const { return architectures::shape_of(spec_); }
  /// How tensor parallelism cuts the parameters, as the family says (tensor_plans.h: as config.json changes it).
  layout::TensorPlan tensor_plan() const { return architectures::tensor_plan(spec_); }
  /// Classes that a classifier of rows tells apart; 0: it is none.
  std::int64_t num_labels() const { return spec_.labels; }
  /// Whether loss() of a classifier that is not training notes the classes that it finds likeliest, and those since the
  /// last call, each int64 [B], in the order of the batches.
  void keep_predictions(bool keep) { keeps_predictions_ = keep; }
  std::vector<at::Tensor> take_predictions() { return std::exchange(predictions_, {}); }
  void set_predictions(std::vector<at::Tensor> predictions) { predictions_ = std::move(predictions); }
  /// True for parameters that weight decay skips (biases and norms: everything of one dimension), by their full name.
  bool is_norm_or_bias(const std::string& parameter_name) const;
  /// True for embeddings (of words, positions, kinds of tokens) and the head that gives logits over the vocabulary; of
  /// words alone: without those of positions and kinds.
  bool is_embedding(const std::string& parameter_name, bool of_words_alone = false) const;

  /// Every part, in the order in which they begin: block 0, its attention, its MLP, block 1, ...
  virtual std::vector<ModelPart> parts() const = 0;
  /// From now on parts run through `runner`; nullptr: directly.
  void set_part_runner(PartRunner runner);
  /// From now on loss() of a batch that holds a part of each row (data::Batch::part) computes attention by this;
  /// without it such a batch throws InputError. Whole rows do not use it.
  void set_attention(nn::AttentionFunction attention);

  /// Mixture of experts: from now on the layers' experts are computed by this; empty: by nn::experts().
  void set_experts(nn::ExpertsFunction experts);
  /// Expert parallelism: from now on every layer holds the experts first, first + 1, ... first + count - 1 and no
  /// others; names stay, and so do the routers, which choose among all. Throws InputError for a family without experts
  /// and for numbers beyond them.
  void keep_experts(std::int64_t first, std::int64_t count);
  /// The expert of its layer that the parameter of this name belongs to; nothing: it is none's.
  std::optional<std::int64_t> expert_of(const std::string& parameter) const {
    return architectures::expert_of(spec_, parameter);
  }
  /// How the load of experts is kept even, at first as config.json says; `experts` is 0 where there are none. A pass in
  /// training adds the gradients of coefficient * loss * scale (set_auxiliary_scale) to its backward.
  const BalanceOptions& balance() const { return balance_; }
  void set_balance(BalanceOptions balance) { balance_ = std::move(balance); }
  /// From now on gradients of auxiliary losses are multiplied by this (1 at first): what a micro-batch counts in the
  /// step, times the loss scale.
  void set_auxiliary_scale(double scale) { auxiliary_scale_ = scale; }
  /// What routers did in training since the last call.
  RouterStatistics take_router_statistics();

  /// Multi-token prediction: blocks behind the last one, each of which predicts a token further ahead
  /// (decoders/prediction.h); 0: there are none.
  std::int64_t prediction_depths() const { return spec_.depths; }
  /// From now on the gradients of loss() in training are those of loss() + weight * (mean of the depths' losses). 0:
  /// the depths are not computed. 0.1 at first, Megatron-LM's --mtp-loss-scaling-factor. Before keep_stages(), which
  /// keeps the embeddings for depths that are computed.
  void set_prediction_weight(double weight) { prediction_weight_ = weight; }
  /// Whether training computes depths.
  bool predicts() const { return prediction_weight_ > 0 && prediction_depths() > 0; }
  /// From now on no parameter of a depth is trained.
  virtual void freeze_predictions() {}
  /// Sums of the depths' losses of training since the last call, each as loss() would give it: fp32 scalars without
  /// gradients. Empty: nothing was computed.
  std::vector<at::Tensor> take_prediction_losses();

  /// Whether a stage may begin or end inside a block: attention is added to the residual stream before the MLP reads
  /// it.
  bool blocks_can_be_cut() const { return spec_.blocks_can_be_cut(); }
  /// Pipeline parallelism: from now on the model holds what lies in `parts` and nothing else; its other parameters are
  /// gone, those that stay keep their names. Passes go through run_stage() then. Throws InputError for a family that
  /// cannot be cut, or whose blocks cannot, and for parts beyond its blocks.
  void keep_stages(const std::vector<layout::StagePart>& parts);
  /// Whether a parameter of this name is the whole model's, and gone.
  bool lies_elsewhere(const std::string& parameter) const { return elsewhere_.contains(parameter); }
  const std::set<std::string>& elsewhere() const { return elsewhere_; }    ///< all of them
  std::int64_t elsewhere_elements() const { return elsewhere_elements_; }  ///< and their elements,
  std::int64_t trained_elsewhere() const { return trained_elsewhere_; }    ///< those that were to be trained
  /// The pass of one of the parts: activations [B, t, C] of `batch` from `input`, those that the part before gave (none
  /// where the embeddings are); of the last part, which has the depths of multi-token prediction, the batch's loss, as
  /// loss() gives it.
  virtual at::Tensor run_stage(const data::Batch& batch, const layout::StagePart& part, const at::Tensor& input,
                               double scale);
  /// The parameter that the first part and the last have in common: embeddings that are the head's matrix, or that the
  /// depths of multi-token prediction read; "": none.
  std::string tied_parameter() const;

 protected:
  /// Reads config.json. Throws InputError for what it cannot be (architectures/architecture.h).
  explicit LanguageModel(Value hf_config);
  /// Lets go of the modules that are in none of `parts`.
  virtual void drop_all_but(const std::vector<layout::StagePart>& parts);
  /// Lets go of the experts that are not among them.
  virtual void drop_experts_but(std::int64_t first, std::int64_t count);
  /// Where the routers of a pass tell what they chose; null: there are none, or nobody asks.
  std::shared_ptr<RouterLog> router_log(const layout::StagePart* stage, const data::Batch& batch) const;
  const std::shared_ptr<const PartRunner>& part_runner() const { return runner_; }
  /// What a forward pass of rows, or of parts of rows, begins with: all but documents and a cache.
  ForwardContext context_of(const data::Batch& batch) const;
  /// `scores`: [B, num_labels()].
  void note_prediction(const at::Tensor& scores);
  double prediction_weight() const { return prediction_weight_; }
  void add_prediction_losses(const std::vector<at::Tensor>& losses);
  double label_smoothing() const { return label_smoothing_; }
  double embedding_noise() const { return is_training() ? embedding_noise_ : 0; }
  // so that torch::nn::Sequential may call forward with ids alone
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())}, {2, torch::nn::AnyValue(at::Tensor())})

  Value hf_config_;

 private:
  /// Runs `drop` and remembers what is gone.
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
