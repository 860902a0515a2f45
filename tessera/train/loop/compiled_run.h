#pragma once
/// \file
/// --device xla in the loop: forward, backward and update are programs on the devices of a PJRT plug-in
/// (xla/compiled_step.h). The module and the optimizer on the host have a copy of weights and states, which
/// bring_back() brings up to date; evaluations, checkpoints and the final model read that.

#include <tessera/train/core/update.h>
#include <tessera/train/loop/passes.h>
#include <tessera/xla/compiled_step.h>

#include <functional>
#include <memory>

namespace tessera::train {

/// The devices of the run; null unless --device is xla. Throws InputError: several
/// processes, no plug-in, or other devices than asked for.
std::shared_ptr<xla::Devices> open_xla(const RunConfig& config, const comm::World& world);

/// Throws InputError for a model, or for rows of it, that no compiled step has. `rows` may be null.
void check_compilable(const models::LanguageModel& model, const data::Dataset* rows);
/// The loss of a micro-batch {ids, labels, scalar factor, int64 lengths [rows] if `padded`, token types if rows have
/// them}: the model's own times the factor, in the run's precision. `model` and `config` outlive it.
xla::CompiledStep::Loss compiled_loss(models::LanguageModel& model, const RunConfig& config, bool padded);
/// How the run's settings divide the step. `model` outlives it.
xla::TrainingOptions compiled_options(const RunConfig& config, const models::LanguageModel& model);

/// The compiled step of a run. Not copied; outlives what passes() and update() return.
class CompiledRun {
 public:
  /// Once the module has its weights.
  explicit CompiledRun(const PassParts& parts);

  std::unique_ptr<StepPasses> passes();
  /// `host`: the update with the same settings over the module; it keeps learning rates and, for checkpoints, states.
  std::unique_ptr<Update> update(std::unique_ptr<Update> host);
  /// Weights and states on the host become those of the devices.
  void bring_back();

 private:
  class Passes;
  class DeviceUpdate;

  /// Whether the program has the rows' lengths as an argument: an encoder's, whose tokens see what follows them.
  bool masks_padding() const;
  /// copy(the devices' state, the host's), in one shape, for every state of every parameter.
  void each_state(const std::vector<xla::CompiledStep::State>& states, const Sharded& sharded,
                  const std::function<void(const at::Tensor& device, const at::Tensor& host)>& copy) const;

  PassParts parts_;
  std::unique_ptr<xla::CompiledStep> step_;
  std::unique_ptr<Update> host_;
  bool lengths_differ_;    // the rows'
  bool leftover_ = false;  // gradients of a step that was skipped
  bool stale_ = false;     // the host's copies are older
};

}  // namespace tessera::train
