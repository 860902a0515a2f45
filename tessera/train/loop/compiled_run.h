#pragma once
/// \file
/// --device xla in the training loop: forward, backward and update are programs on the devices of a PJRT plug-in
/// (xla/compiled_step.h). The module and the optimizer on the host have copies of weights and states; bring_back()
/// refreshes them for checkpoints, the final model and a classifier's evaluations.

#include <tessera/train/core/update.h>
#include <tessera/train/loop/passes.h>
#include <tessera/xla/compiled_step.h>

#include <functional>
#include <memory>
#include <optional>

namespace tessera::train {

/// Opens the run's devices; null unless --device is xla. Throws InputError for several processes, a missing plug-in, or
/// devices other than requested.
std::shared_ptr<xla::Devices> open_xla(const RunConfig& config, const comm::World& world);

/// Throws InputError for a model, or rows, that cannot be compiled. `rows` may be null.
void check_compilable(const models::LanguageModel& model, const data::Dataset* rows);
/// Loss of a micro-batch {ids, labels, scalar factor, int64 lengths [rows] if `padded`, token types if rows have them}:
/// the model's loss times the factor, under autocast to `narrow` if given. `model` must outlive it.
xla::CompiledStep::Loss compiled_loss(models::LanguageModel& model, std::optional<at::ScalarType> narrow, bool padded);
/// Converts the run's settings to options of the compiled step. `model` must outlive them.
xla::TrainingOptions compiled_options(const RunConfig& config, const models::LanguageModel& model);

/// A run's compiled step. Not copyable; must outlive the results of passes() and update().
class CompiledRun {
 public:
  /// Call once the module's weights are loaded.
  explicit CompiledRun(const PassParts& parts);

  std::unique_ptr<StepPasses> passes();
  /// `host`: an update over the module with the same settings; it keeps the learning rates and, for checkpoints,
  /// states.
  std::unique_ptr<Update> update(std::unique_ptr<Update> host);
  /// Copies the host's weights and states to the devices.
  void bring_back();

 private:
  class Passes;
  class DeviceUpdate;

  /// Whether the program takes the rows' lengths as an argument: true for encoders, whose tokens attend to later ones,
  /// padding included.
  bool masks_padding() const;
  /// Calls copy(device state, host state), in the same shape, for every state of every parameter.
  void each_state(const std::vector<xla::CompiledStep::State>& states, const Sharded& sharded,
                  const std::function<void(const at::Tensor& device, const at::Tensor& host)>& copy) const;

  PassParts parts_;
  std::unique_ptr<xla::CompiledStep> step_;
  std::unique_ptr<Update> host_;
  bool lengths_differ_;  // the rows'
  xla::CompiledStep::Loss evaluation_loss_;
  bool evaluated_lengths_differ_ = false;  // the validation rows'
  bool global_ = false;                    // one program over the rows of all devices
  bool leftover_ = false;                  // gradients of a skipped step remain
  bool stale_ = false;                     // the host's copies are outdated
};

}  // namespace tessera::train
