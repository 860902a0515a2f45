#pragma once
/// \file
/// Forward and backward of a step: of the whole model on this rank, or of its stages on several.

#include <tessera/comm/world.h>
#include <tessera/train/features/objective.h>
#include <tessera/train/loop/parallelize.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/run_clock.h>
#include <tessera/train/reporting/window.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::train {

/// What a step's loss is multiplied by.
struct LossScales {
  double scale = 0;   ///< factor of the sum over tokens in the backward pass
  double logged = 1;  ///< factor of what is logged: it differs where the loss is a mean of means
};

class StepPasses {
 public:
  virtual ~StepPasses() = default;
  /// Makes the gradients of step `step` from this rank's micro-batches, and reduces them over the ranks. Losses go to
  /// the window. Collective.
  virtual void compute(const std::vector<data::Batch>& batches, std::int64_t step, const LossScales& scales) = 0;
  /// A step of such micro-batches on this rank alone, to see whether it fits into memory. Gradients are left behind.
  virtual void rehearse(const data::Batch& batch) = 0;

  virtual LossesOf losses() { return {}; }               ///< how evaluations get losses; empty: from the model
  virtual std::string describe() const { return {}; }    ///< for the log; empty: nothing
  virtual std::string drawing() { return {}; }           ///< the last step as an SVG. Collective
  virtual std::string first_not_finite() { return {}; }  ///< where a NaN came from; empty: not known. Collective
};

/// What passes work on; it outlives them.
struct PassParts {
  Setup& setup;
  comm::World& world;
  ParallelModel& model;
  Objective& objective;
  RunClock& clock;
  Window& window;
};

/// Passes through a pipeline where the setup has one.
std::unique_ptr<StepPasses> make_passes(const PassParts& parts);

/// In fixed order a pipeline's losses are logged by one of its ranks: halves would be added up in another order than
/// wholes.
bool one_tells_loss(const Setup& setup);
/// Ranks that know the same losses.
int ranks_with_same_loss(const RunGroups& groups);

}  // namespace tessera::train
