#pragma once
/// \file
/// Training of any torch::nn::Module on the devices of a PJRT plug-in.
///
///   auto client = std::make_shared<xla::Client>(xla::Plugin::load(xla::find_plugin()));
///   xla::CompiledTraining training(client, model, {{{8, 256}, at::kLong}, {{8, 256}, at::kLong}},
///       [&](const auto& batch) { return loss(model->forward(batch[0]), batch[1]); }, options);
///   const xla::StepResult result = training.step(micro_batches, learning_rate);
///   training.write_back();  // before saving: the module has the trained parameters again

#include <torch/nn/module.h>

#include <tessera/xla/capture/capture.h>
#include <tessera/xla/pjrt/client.h>
#include <tessera/xla/step/gradient_program.h>
#include <tessera/xla/step/update_program.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::xla {

struct TrainingOptions {
  layout::WrapPolicy units = {};      ///< what is gathered together; kind none: all at once
  bool shard = true;                  ///< parameters, gradients and moments are divided over the devices (FSDP)
  bool reshard_after_forward = true;  ///< gathered parameters are dropped between forward and backward
  bool recompute = false;             ///< activation checkpointing of every unit but the root
  double max_grad_norm = 0;           ///< 0: not clipped
  AdamWOptions adamw = {};
  std::function<bool(const std::string&)> has_decay = {};  ///< by a parameter's name; empty: all have
};

struct StepResult {
  double loss = 0;           ///< mean over the micro-batches of all devices
  double gradient_norm = 0;  ///< of the mean gradient, before clipping
};

/// What the compiler says of both programs, on each device.
struct TrainingMemory {
  ProgramMemory gradients, update;
  std::int64_t states = 0;  ///< bytes of parameters, gradients and moments by our own count
};

/// Threads: one at a time. The module must outlive it and keep its parameters; they are not changed until write_back().
class CompiledTraining {
 public:
  /// The mean loss of a micro-batch: a scalar of fp32.
  using Loss = std::function<at::Tensor(const std::vector<at::Tensor>& batch)>;

  /// Captures and compiles; `batch`: sizes and types of one device's micro-batch. Throws InputError for a step that
  /// cannot be compiled (capture/capture.h, lowering/lowering.h), Error with the compiler's text.
  CompiledTraining(std::shared_ptr<const Client> client, torch::nn::Module& module, const std::vector<ValueInfo>& batch,
                   const Loss& loss, TrainingOptions options);

  /// One step. micro_batches[m * devices + d] is the m-th of device d. Throws InputError for another number of them than
  /// a multiple of the devices, and for tensors of other sizes or types than were captured.
  StepResult step(const std::vector<std::vector<at::Tensor>>& micro_batches, double learning_rate);

  /// Copies the trained parameters into the module.
  void write_back();

  TrainingMemory memory() const;
  /// Optimized programs as the plug-in prints them, for counting collectives.
  std::string optimized_gradients() const { return gradients_->optimized(); }
  const std::vector<FlatUnit>& units() const { return units_; }

 private:
  Buffer upload(const at::Tensor& tensor, int device) const;
  void upload_states();

  std::shared_ptr<const Client> client_;
  parallel::ModuleParameters parameters_;
  std::vector<ValueInfo> batch_;
  TrainingOptions options_;
  std::vector<FlatUnit> units_;
  std::unique_ptr<Program> gradients_, update_;
  std::int64_t steps_ = 0;
  // [device][unit]; moments and sums of trained units only, in the same order
  std::vector<std::vector<Buffer>> weights_, first_, second_, sums_;
  std::vector<std::vector<Buffer>> constants_;  // [device][constant]
};

}  // namespace tessera::xla
