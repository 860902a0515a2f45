#pragma once
/// \file
/// Mixtures of experts in a run: how the load of experts is kept even, and what the log says of it.

#include <tessera/models/language_model.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/core/run_groups.h>
#include <tessera/train/reporting/metrics.h>

#include <cstdint>
#include <memory>

namespace tessera {
struct OptimizationConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

class RunFeature;

/// Takes the settings into the model's BalanceOptions, with sums over the groups that share rows or steps. Nothing for
/// a model without experts. Throws InputError where the settings contradict themselves.
void set_up_routers(models::LanguageModel& model, const OptimizationConfig& config, const RunGroups& groups);

/// Balancing without a loss (nn::update_bias): after a step in which routers did as `statistics` says, this rank's, the
/// biases by which experts are chosen move by `rate`. Collective. Nothing for rate 0.
void update_router_biases(const models::LanguageModel& model, Sharded& sharded,
                          const models::RouterStatistics& statistics, double rate, const RunGroups& groups);

/// What routers did between two logs.
class RouterWindow {
 public:
  /// `statistics` of the passes of a step, this rank's.
  void end_step(const models::RouterStatistics& statistics);
  /// Brings the ranks together and starts anew: losses are means over the `micro_batches` of the window, all ranks'.
  /// Collective; the same model on all ranks. Nothing without experts.
  RouterMetrics close(const models::LanguageModel& model, const comm::Group& world, const RunGroups& groups,
                      std::int64_t micro_batches);

 private:
  models::RouterStatistics sums_;
};

/// Mixtures of experts in a run: settings, biases, numbers.
std::unique_ptr<RunFeature> make_routers(const RunConfig& config);

}  // namespace tessera::train
