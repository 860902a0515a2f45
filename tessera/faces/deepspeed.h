#pragma once
/// \file
/// DeepSpeed's face: an engine around your own module, described by DeepSpeed's JSON.
///
///   auto engine = tessera::initialize(model, {.config = "ds.json"});      // a shared_ptr<M>, or a TORCH_MODULE holder
///   for (auto& batch : loader) {
///     at::Tensor loss = at::cross_entropy_loss(engine(batch.x), batch.y); // engine(...) is the module's forward(...)
///     engine.backward(loss);
///     engine.step();                                                      // acts at the accumulation boundary
///   }

#include <torch/nn/pimpl.h>

#include <tessera/faces/loader.h>
#include <tessera/faces/training.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera {

struct InitializeOptions {
  /// DeepSpeed's JSON: a file, or the object itself as text. Empty: `arguments` say it all.
  std::string config = {};
  /// Settings besides, as flags of `tessera train`: {"--seed", "1"}. "auto" in the JSON takes its value from them;
  /// contradictions are errors.
  std::vector<std::string> arguments = {};
  /// Your own optimizer, of the module's parameters (it must outlive the engine), instead of the JSON's.
  torch::optim::Optimizer* optimizer = nullptr;
  /// The learning rate's factor after so many steps, instead of the JSON's scheduler.
  std::function<double(std::int64_t steps)> lr_lambda = {};
  comm::Group group = {};  ///< the data-parallel ranks; empty: all
};

namespace faces {

/// The configuration that the options mean, for `ranks` data-parallel ranks: batch sizes are inferred from each other
/// as DeepSpeed does. Throws InputError with all problems, each with file and line.
RunConfig read_configuration(const InitializeOptions& options, int ranks);

/// All of an engine but the module's type. Methods have DeepSpeed's names and meaning. Collective where Sharded's are.
class DeepSpeedEngine {
 public:
  DeepSpeedEngine(std::shared_ptr<torch::nn::Module> module, const InitializeOptions& options);

  /// loss: the mean over this rank's micro-batch, one element. It is divided by gradient_accumulation_steps() here.
  void backward(const at::Tensor& loss);
  /// After every backward. At the boundary: clips, updates the weights (with fp16 unless gradients overflowed), takes
  /// the schedule one step on and clears the gradients; elsewhere it counts.
  void step();
  void train(bool on = true) { training_->module().train(on); }
  void eval() { train(false); }

  /// Whether the micro-batch that is being worked on is the last of its step.
  bool is_gradient_accumulation_boundary() const { return (micro_steps_ + 1) % gradient_accumulation_steps() == 0; }
  std::int64_t train_batch_size() const {
    return train_micro_batch_size_per_gpu() * gradient_accumulation_steps() * dp_world_size();
  }
  std::int64_t train_micro_batch_size_per_gpu() const {
    return training_->config().optimization.per_device_train_batch_size;
  }
  std::int64_t gradient_accumulation_steps() const { return training_->accumulation(); }
  double gradient_clipping() const { return training_->config().optimization.max_grad_norm; }
  int zero_optimization_stage() const;  ///< 0 to 3
  int dp_world_size() const { return training_->group().size(); }
  bool fp16_enabled() const { return training_->config().optimization.fp16; }
  bool bfloat16_enabled() const { return training_->config().optimization.bf16; }

  std::int64_t global_steps() const { return global_steps_; }  ///< steps done, the skipped ones included
  std::int64_t skipped_steps() const { return training_->skipped_steps(); }
  std::int64_t micro_steps() const { return micro_steps_; }  ///< calls of step()
  bool was_step_applied() const { return applied_; }  ///< by the last step(): false off the boundary and on overflow
  std::vector<double> get_lr() const { return training_->update().learning_rates(); }  ///< one for each parameter group
  double get_global_grad_norm() const { return grad_norm_; }  ///< the norm of the last step, before clipping
  double loss_scale() const { return training_->loss_scale() ? training_->loss_scale()->scale() : 1; }

  /// This rank's share of the data: micro-batches of train_micro_batch_size_per_gpu() rows, as many on every rank.
  DataLoader deepspeed_io(RowSource source, bool shuffle = true, bool drop_last = false) const;

  /// Writes FOLDER/TAG (empty: global_stepN), every rank its part (--save_state_dict_type full among the arguments:
  /// rank 0 whole tensors), then its name into FOLDER/latest. All ranks call it, with the same tag. Returns the folder.
  std::string save_checkpoint(const std::string& folder, const std::string& tag = "",
                              const Value& client_state = Value::make_object());
  struct Loaded {
    std::string path;
    Value client_state;
  };
  /// TAG empty: what FOLDER/latest names; there is none: nullopt, with a warning. The number of ranks and the ZeRO
  /// stage may differ from those that saved. All ranks call it.
  struct LoadOptions {
    bool load_optimizer_states = true;  ///< and schedule, loss scale, counts of steps
    bool load_random_states = true;
  };
  std::optional<Loaded> load_checkpoint(const std::string& folder, const std::string& tag, const LoadOptions& options);
  std::optional<Loaded> load_checkpoint(const std::string& folder, const std::string& tag = "") {
    return load_checkpoint(folder, tag, {});
  }
  /// FOLDER/model.safetensors: whole weights, whatever the stage (zero_to_fp32.py is not needed). All ranks call it.
  void save_model(const std::string& folder);

  /// What updates the weights: learning rates and states.
  train::Update& optimizer() { return training_->update(); }
  Sharded& sharded() { return training_->sharded(); }
  faces::Training& training() { return *training_; }

 protected:
  std::unique_ptr<Training> training_;  // its address stays when the engine is moved

 private:
  std::int64_t micro_steps_ = 0, global_steps_ = 0;
  double grad_norm_ = 0;
  bool applied_ = false;
};

}  // namespace faces

/// An engine for modules of type M.
template <class M>
class Engine : public faces::DeepSpeedEngine {
 public:
  Engine(std::shared_ptr<M> module, const InitializeOptions& options)
      : DeepSpeedEngine(module, options), module_(std::move(module)) {}

  /// module.forward(...), in the precision of the configuration. A tensor that comes out in fp16 or bf16 becomes fp32.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    return training_->forward(*module_, std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }
  M& module() { return *module_; }

 private:
  std::shared_ptr<M> module_;
};

/// deepspeed.initialize: joins the job (unless tessera::init() was called), reads the configuration, divides the module
/// over the ranks. Rank 0's weights are everyone's. Collective. Throws InputError for configurations that do not hold.
template <class M>
Engine<M> initialize(std::shared_ptr<M> module, const InitializeOptions& options = {}) {
  return Engine<M>(std::move(module), options);
}
template <class M>
Engine<M> initialize(const torch::nn::ModuleHolder<M>& module, const InitializeOptions& options = {}) {
  return Engine<M>(module.ptr(), options);
}

}  // namespace tessera
