#pragma once
/// \file
/// What changes the weights: an optimizer of this library, fused over the rank's part of everything, or one of
/// torch::optim that the user made of the module's own parameters.

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

/// An optimizer, whoever made it, over this rank's parts of the parameters. Not thread-safe.
class Update {
 public:
  virtual ~Update() = default;
  /// One step; gradients are multiplied by `gradient_scale`.
  virtual void step(double gradient_scale) = 0;
  virtual bool takes_step_scalars() const { return false; }  ///< as optim::Optimizer
  /// The same by scalars on the device (optim::Optimizer); only if takes_step_scalars().
  virtual void step_by(const at::Tensor& scalars);
  virtual void forget_step() {}  ///< the last step by scalars turns out to have been skipped: it does not count
  /// The norm of the step's gradients, of an update that has them elsewhere than in the parameters' grad(). Collective.
  virtual std::optional<double> gradient_norm() { return std::nullopt; }
  /// Every learning rate becomes rate(the one that the optimizer was made with, the number of its parameter group).
  virtual void set_learning_rates(const std::function<double(double base, std::size_t group)>& rate) = 0;
  /// Acts on this library's optimizers that have betas; elsewhere nothing, and false.
  virtual bool set_betas(const optim::Betas&) { return false; }
  /// One for each parameter group; this library's optimizers have one, with decoupled_lr another for embeddings.
  virtual std::vector<double> learning_rates() const = 0;

  /// For checkpoints: what this rank holds of the state tensors, under names such as "exp_avg.layers.0.weight". They
  /// refer to `sharded`.
  virtual std::vector<HeldState> states(const Sharded& sharded) const = 0;
  virtual std::int64_t steps() const = 0;  ///< updates made so far
  /// Reads FOLDER/STEM.safetensors, or the pieces that its index names; `sums` notes what is read (it may be null).
  /// Throws InputError unless it holds exactly this optimizer's states.
  virtual void restore(const Sharded& sharded, std::int64_t steps, const std::string& folder,
                       const std::shared_ptr<format::ReadSums>& sums, const std::string& stem) = 0;
};

/// Makes one for a module that is divided already: `sharded` is its engine, and has the parts to be updated.
using MakeUpdate = std::function<std::unique_ptr<Update>(const torch::nn::Module& module, const Sharded& sharded)>;

/// The weight decay of a parameter, by its name and whole shape.
using WeightDecay = std::function<double(const std::string& name, const std::vector<std::int64_t>& shape)>;
/// Every parameter decays (DeepSpeed, torch), or all but biases and norms, that is those of one dimension (Hugging
/// Face's Trainer).
WeightDecay decay_everything(double weight_decay);
WeightDecay decay_matrices(double weight_decay);

/// What a model says of its parameters, by their names, where that changes how they are updated.
struct ParameterKinds {
  using Has = std::function<bool(const std::string& name)>;  ///< whether a parameter is one
  Has embedding = {};           ///< tables of words, positions, kinds of tokens; the head. Empty: nobody knows.
  Has embedding_of_words = {};  ///< tables of words; the head. Empty: nobody knows.
  double width = 1;    ///< maximal update parameterization: the model's width over the base's (architectures/mup.h)
  Has projector = {};  ///< what mm_projector_lr is for: the projector of a model that sees images. Empty: it has none.
};

/// An optimizer of this library, as the configuration chooses it (--optim, --learning_rate and so on), over this rank's
/// parts of the parameters that are trained. decoupled_lr acts on embeddings of words and the head; Muon leaves all
/// embeddings and the head to AdamW; without `kinds` both are refused (InputError while making).
/// With kinds.width m other than 1 rates follow Megatron-LM's get_mup_config_overrides(): matrices that are
/// neither embeddings nor head have rate / m, with AdamW and Adam epsilon / m, too; with SGD all others have rate * m
/// instead, and Muon's own matrices stay as they are. Rates of decoupled_lr are those that it gives. Optimizers that
/// scale rates by the norms of weights (Adafactor, LAMB, LARS) are refused.
MakeUpdate configured_update(const OptimizationConfig& config, WeightDecay decay, ParameterKinds kinds = {});

/// The user's optimizer, whose parameters are the module's: they are replaced by this rank's parts of them, so that it
/// updates those; parameters that are not trained leave it. It must outlive the Update. Elementwise ones only (Adam,
/// AdamW, SGD, Adagrad, RMSprop): InputError for others, and for parameters that are not the module's. Throws while
/// making.
MakeUpdate torch_update(torch::optim::Optimizer& optimizer);

}  // namespace tessera::train
