#pragma once
/// \file
/// The object that changes the weights: an optimizer of this library, fused over the rank's part of all parameters, or
/// a torch::optim optimizer that the user made from the module's own parameters.

#include <tessera/format/manifest/read_sums.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/saving/save_plan.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {
struct OptimizationConfig;
}

namespace torch::optim {
class Optimizer;
}

namespace tessera::train {

/// An optimizer of either kind over this rank's parts of the parameters. Not thread-safe.
class Update {
 public:
  virtual ~Update() = default;
  /// Takes one step; gradients are multiplied by `gradient_scale`.
  virtual void step(double gradient_scale) = 0;
  virtual bool takes_step_scalars() const { return false; }  ///< see optim::Optimizer
  /// Same, with scalars on the device (optim::Optimizer); only if takes_step_scalars().
  virtual void step_by(const at::Tensor& scalars);
  virtual void forget_step() {}  ///< reports that the last step by scalars was in fact skipped, so it is not counted
  /// The norm of the step's gradients, for an update that stores them outside the parameters' grad(). Collective.
  virtual std::optional<double> gradient_norm() { return std::nullopt; }
  /// Sets every learning rate to rate(the rate with which the optimizer was constructed, index of the parameter group).
  virtual void set_learning_rates(const std::function<double(double base, std::size_t group)>& rate) = 0;
  /// Sets the betas of this library's optimizers that have them; otherwise does nothing and returns false.
  virtual bool set_betas(const optim::Betas&) { return false; }
  /// The rates of the parameter groups; this library's optimizers have one group, plus one for embeddings with
  /// decoupled_lr.
  virtual std::vector<double> learning_rates() const = 0;

  /// This rank's part of the state tensors for checkpoints, with names such as "exp_avg.layers.0.weight". They refer to
  /// `sharded`, which must outlive them.
  virtual std::vector<HeldState> states(const Sharded& sharded) const = 0;
  virtual std::int64_t steps() const = 0;  ///< updates made so far
  /// Reads FOLDER/STEM.safetensors, or the pieces that its index names; `sums` records what is read (may be null).
  /// Throws InputError unless it holds exactly this optimizer's states.
  virtual void restore(const Sharded& sharded, std::int64_t steps, const std::string& folder,
                       const std::shared_ptr<format::ReadSums>& sums, const std::string& stem) = 0;
};

/// Creates an Update for a module that is already divided: `sharded` is its engine and holds the parts to update.
using MakeUpdate = std::function<std::unique_ptr<Update>(const torch::nn::Module& module, const Sharded& sharded)>;

/// The weight decay of a parameter, by its name and whole shape.
using WeightDecay = std::function<double(const std::string& name, const std::vector<std::int64_t>& shape)>;
/// Weight decay for every parameter (DeepSpeed, torch), or for all except biases and norms, that is, parameters of one
/// dimension (Hugging Face's Trainer).
WeightDecay decay_everything(double weight_decay);
WeightDecay decay_matrices(double weight_decay);

/// Properties of a model's parameters, by name, that affect their update.
struct ParameterKinds {
  using Has = std::function<bool(const std::string& name)>;  ///< whether a parameter is of this kind
  Has embedding = {};           ///< tables of words, positions, token types; the head. Empty: unknown.
  Has embedding_of_words = {};  ///< tables of words; the head. Empty: unknown.
  double width = 1;    ///< maximal update parameterization: the model's width over the base width (architectures/mup.h)
  Has projector = {};  ///< the projector of a model with image input (mm_projector_lr). Empty: none.
};

/// An optimizer of this library, as configured (--optim, --learning_rate and so on), over this rank's parts of the
/// trained parameters. decoupled_lr applies to word embeddings and the head; Muon leaves all embeddings and the head to
/// AdamW; without `kinds` both are refused (InputError on creation).
/// If kinds.width is m, other than 1, rates follow Megatron-LM's get_mup_config_overrides(): matrices that are neither
/// embeddings nor head have rate / m and, with AdamW and Adam, epsilon / m; with SGD all other parameters have rate * m
/// instead; Muon's own matrices are unchanged. Rates of decoupled_lr are used as given. Optimizers that scale rates by
/// the norms of weights (Adafactor, LAMB, LARS) are refused.
MakeUpdate configured_update(const OptimizationConfig& config, WeightDecay decay, ParameterKinds kinds = {});

/// The user's optimizer over the module's parameters. They are replaced by this rank's parts, which the optimizer then
/// updates; parameters that are not trained are removed from it. The optimizer must outlive the Update. Elementwise
/// optimizers only (Adam, AdamW, SGD, Adagrad, RMSprop): throws InputError on creation for others, and for parameters
/// that are not the module's.
MakeUpdate torch_update(torch::optim::Optimizer& optimizer);

}  // namespace tessera::train
