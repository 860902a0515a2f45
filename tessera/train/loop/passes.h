#pragma once
/// \file
/// Runs forward and backward of a step: through the whole model on this rank, or through stages on several ranks.

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

/// Factors of a step's loss.
struct LossScales {
  double scale = 0;   ///< factor of the sum over tokens in the backward pass
  double logged = 1;  ///< factor of the logged value: differs if the loss is a mean of means
};

class StepPasses {
 public:
  virtual ~StepPasses() = default;
  /// Computes the gradients of step `step` from this rank's micro-batches and reduces them over the ranks. Adds the
  /// losses to the window. Collective.
  virtual void compute(const std::vector<data::Batch>& batches, std::int64_t step, const LossScales& scales) = 0;
  /// Runs a step whose micro-batches are like `batch` on this rank alone, to see whether it fits into memory. Leaves
  /// gradients behind.
  virtual void rehearse(const data::Batch& batch) = 0;

  /// computes losses for evaluations; empty: the model computes them
  virtual LossesOf losses() { return {}; }
  virtual std::string describe() const { return {}; }    ///< for the log; may be empty
  virtual std::string drawing() { return {}; }           ///< the last step as an SVG. Collective
  virtual std::string first_not_finite() { return {}; }  ///< origin of a NaN; empty: unknown. Collective
};

/// The objects that passes use; they outlive the passes.
struct PassParts {
  Setup& setup;
  comm::World& world;
  ParallelModel& model;
  Objective& objective;
  RunClock& clock;
  Window& window;
};

/// Uses a pipeline if the setup has one.
std::unique_ptr<StepPasses> make_passes(const PassParts& parts);

/// In fixed order one rank of a pipeline logs the losses: adding up partial losses would give different bits than
/// adding up whole ones.
bool one_tells_loss(const Setup& setup);
/// Number of ranks that have the same losses.
int ranks_with_same_loss(const RunGroups& groups);

}  // namespace tessera::train
