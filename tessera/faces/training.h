#pragma once
/// \file
/// faces/: the faces of the systems that users know (DeepSpeed's initialize, Accelerate's Accelerator, Hugging Face's
/// Trainer) around any torch::nn::Module. This header: what all three are made of, a module under training
/// (train/core/step.h).

#include <tessera/comm/world.h>
#include <tessera/faces/training_ranks.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/core/step.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace tessera::parallel {
class ActivationCheckpointing;
}

namespace tessera::faces {

/// Collective where Sharded's functions are. Not thread-safe.
class Training : public train::StepCore {
 public:
  /// Moves the module to the world's device, cuts it over the ranks of tp, and divides what is left over those with
  /// other rows, as the configuration says; gradients are means over these. `accumulation`: micro-batches of a step.
  /// `has_model_features`: the caller hosts what only our models can do (model_features.h); else their settings are
  /// refused. gradient_checkpointing acts in our models.
  Training(std::shared_ptr<torch::nn::Module> module, const RunConfig& config, std::int64_t accumulation,
           const train::MakeUpdate& make_update, TrainingRanks ranks, bool has_model_features = false);

  const RunConfig& config() const { return *config_; }      ///< as given, with logical_shards filled in
  const comm::Group& group() const { return ranks_.data; }  ///< the ranks that have other rows
  const comm::Group& all() const { return ranks_.all; }     ///< all that train the module together
  /// Gives the module its whole parameters back (Sharded::restore, TensorParallel::restore). Collective.
  void make_whole();
  std::int64_t accumulation() const { return accumulation_; }  ///< micro-batches of a step
  /// Between steps. Throws InputError with deterministic_reduce, whose order depends on the number, and below 1.
  void set_accumulation(std::int64_t micro_batches);
  /// Checkpoints hold whole tensors, which rank 0 writes (save_state_dict_type).
  bool saves_whole() const;
  /// What recomputes activations; null: nothing does.
  const std::shared_ptr<const parallel::ActivationCheckpointing>& checkpointing() const { return checkpointing_; }

  /// Belongs around the forward pass (train/core/precision.h).
  [[nodiscard]] nn::Autocast autocast() const {
    return nn::Autocast(train::training_precision(*config_), ranks_.all.device().type(), /*wide=*/true);
  }
  /// Around a forward pass that evaluates.
  [[nodiscard]] nn::Autocast evaluation_autocast() const {
    return nn::Autocast(train::evaluation_precision(*config_), ranks_.all.device().type(), /*wide=*/true);
  }
  /// Outputs that are narrow become fp32, as Accelerate does: losses need the range.
  static at::Tensor widen(const at::Tensor& output);
  /// What goes in where weights are narrow (param_dtype), as FSDP's cast_forward_inputs: floating-point tensors become
  /// as narrow. Where autocast computes in fp32 (nn/autocast.h) narrow ones become fp32.
  at::Tensor narrow(const at::Tensor& input) const;
  template <class T>
  decltype(auto) narrow(T&& input) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>)
      return narrow(static_cast<const at::Tensor&>(input));
    else
      return std::forward<T>(input);
  }
  /// module.forward(...) under autocast(), of narrow() arguments; a tensor that comes out is widened. `module`: the
  /// trained one, by its own type.
  template <class M, class... Arguments>
  auto forward(M& module, Arguments&&... arguments) const {
    const nn::Autocast precision = autocast();
    auto output = module.forward(narrow(std::forward<Arguments>(arguments))...);
    if constexpr (std::is_same_v<decltype(output), at::Tensor>)
      return widen(output);
    else
      return output;
  }

  /// loss (one element), divided by the micro-batches of a step and multiplied by the loss scale; backward. Throws
  /// InputError for more.
  void backward(const at::Tensor& loss);

 private:
  std::shared_ptr<RunConfig> config_;
  TrainingRanks ranks_;
  std::int64_t accumulation_;
  std::optional<TensorParallel> tensor_;
  std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing_;
};

}  // namespace tessera::faces
