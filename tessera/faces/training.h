#pragma once
/// \file
/// faces/: the faces of the systems that users know (DeepSpeed's initialize, Accelerate's Accelerator, Hugging Face's
/// Trainer) around any torch::nn::Module. This header: what all three are made of, a module under training
/// (train/core/step.h).

#include <tessera/comm/world.h>
#include <tessera/config/core/run_config.h>
#include <tessera/nn/autocast.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/core/step.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace tessera::faces {

/// Collective where Sharded's functions are. Not thread-safe.
class Training : public train::StepCore {
 public:
  /// Moves the module to the world's device and divides it over the ranks of `group` (empty: all) as the configuration
  /// says; gradients are means over ranks. `accumulation`: micro-batches of a step.
  Training(std::shared_ptr<torch::nn::Module> module, RunConfig config, std::int64_t accumulation,
           const train::MakeUpdate& make_update, comm::Group group = {});

  const RunConfig& config() const { return config_; }
  const comm::Group& group() const { return group_; }
  std::int64_t accumulation() const { return accumulation_; }
  /// Between steps. Throws InputError with deterministic_reduce, whose order depends on the number, and below 1.
  void set_accumulation(std::int64_t micro_batches);
  /// Checkpoints hold whole tensors, which rank 0 writes (save_state_dict_type).
  bool saves_whole() const { return config_.output.save_state_dict_type == StateDictType::full; }

  /// Belongs around the forward pass (train/core/precision.h).
  [[nodiscard]] nn::Autocast autocast() const {
    return nn::Autocast(train::training_precision(config_), group_.device().type());
  }
  /// Around a forward pass that evaluates.
  [[nodiscard]] nn::Autocast evaluation_autocast() const {
    return nn::Autocast(train::evaluation_precision(config_), group_.device().type());
  }
  /// Outputs that are narrow become fp32, as Accelerate does: losses need the range.
  static at::Tensor widen(const at::Tensor& output);
  /// What goes in where weights are narrow (param_dtype), as FSDP's cast_forward_inputs: floating-point tensors become
  /// as narrow.
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
  RunConfig config_;
  comm::Group group_;
  std::int64_t accumulation_;
};

/// Joins the job unless the program has done so (tessera::init).
comm::World& ensure_world(const RunConfig& config);

}  // namespace tessera::faces
