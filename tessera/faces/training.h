#pragma once
/// \file
/// faces/: interfaces in the style of systems that users know (DeepSpeed's initialize, Accelerate's Accelerator,
/// Hugging Face's Trainer) around any torch::nn::Module. This header: their common base, a module under training
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

/// Collective wherever Sharded's functions are. Not thread-safe.
class Training : public train::StepCore {
 public:
  /// Moves the module to the world's device, cuts it over the ranks of tp, and divides the rest over the ranks with
  /// different rows, as configured; gradients are means over these. `accumulation`: micro-batches of a step.
  /// `has_model_features`: the caller applies the features of our models (model_features.h); otherwise their settings
  /// are refused. gradient_checkpointing works only in our models.
  Training(std::shared_ptr<torch::nn::Module> module, const RunConfig& config, std::int64_t accumulation,
           const train::MakeUpdate& make_update, TrainingRanks ranks, bool has_model_features = false);

  const RunConfig& config() const { return *config_; }      ///< as given, with logical_shards filled in
  const comm::Group& group() const { return ranks_.data; }  ///< the ranks with different rows
  const comm::Group& all() const { return ranks_.all; }     ///< the ranks that train the module together
  /// Restores the module's whole parameters (Sharded::restore, TensorParallel::restore). Collective.
  void make_whole();
  std::int64_t accumulation() const { return accumulation_; }  ///< micro-batches of a step
  /// Call between steps. Throws InputError with deterministic_reduce, whose order depends on the number, and below 1.
  void set_accumulation(std::int64_t micro_batches);
  /// Whether checkpoints contain whole tensors, written by rank 0 (save_state_dict_type).
  bool saves_whole() const;
  /// The recomputation of activations; null: none.
  const std::shared_ptr<const parallel::ActivationCheckpointing>& checkpointing() const { return checkpointing_; }

  /// For the scope of the forward pass (train/core/precision.h).
  [[nodiscard]] nn::Autocast autocast() const {
    return nn::Autocast(train::training_precision(*config_), ranks_.all.device().type(), /*wide=*/true);
  }
  /// For the scope of an evaluating forward pass.
  [[nodiscard]] nn::Autocast evaluation_autocast() const {
    return nn::Autocast(train::evaluation_precision(*config_), ranks_.all.device().type(), /*wide=*/true);
  }
  /// Converts narrow outputs to fp32, like Accelerate: losses need the range.
  static at::Tensor widen(const at::Tensor& output);
  /// Converts inputs for narrow weights (param_dtype), like FSDP's cast_forward_inputs: floating-point tensors become
  /// narrow as well. If autocast computes in fp32 (nn/autocast.h), narrow inputs become fp32.
  at::Tensor narrow(const at::Tensor& input) const;
  template <class T>
  decltype(auto) narrow(T&& input) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>)
      return narrow(static_cast<const at::Tensor&>(input));
    else
      return std::forward<T>(input);
  }
  /// Calls module.forward(...) under autocast() with narrow() arguments; a tensor output is widened. `module`: the
  /// trained module, with its own type.
  template <class M, class... Arguments>
  auto forward(M& module, Arguments&&... arguments) const {
    const nn::Autocast precision = autocast();
    auto output = module.forward(narrow(std::forward<Arguments>(arguments))...);
    if constexpr (std::is_same_v<decltype(output), at::Tensor>)
      return widen(output);
    else
      return output;
  }

  /// Divides loss (one element) by the micro-batches of a step, multiplies it by the loss scale, and runs backward.
  /// Throws InputError for more elements.
  void backward(const at::Tensor& loss);

 private:
  std::shared_ptr<RunConfig> config_;
  TrainingRanks ranks_;
  std::int64_t accumulation_;
  std::optional<TensorParallel> tensor_;
  std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing_;
};

}  // namespace tessera::faces
