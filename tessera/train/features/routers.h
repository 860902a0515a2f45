#pragma once
/// \file
/// Mixtures of experts in a run: balances the load of the experts, and logs the routers' metrics.

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

/// Copies the settings into the model's BalanceOptions, with sums over the groups that share rows or steps. Does
/// nothing for a model without experts. Throws InputError for contradictory settings.
void set_up_routers(models::LanguageModel& model, const OptimizationConfig& config, const RunGroups& groups);

/// Balancing without a loss (nn::update_bias): after a step with this rank's router `statistics`, moves the biases that
/// influence the choice of experts by `rate`. Collective. Does nothing for rate 0.
void update_router_biases(const models::LanguageModel& model, Sharded& sharded,
                          const models::RouterStatistics& statistics, double rate, const RunGroups& groups);

/// Router statistics between two logs.
class RouterWindow {
 public:
  /// `statistics`: collected by this rank's passes in a step.
  void end_step(const models::RouterStatistics& statistics);
  /// Sums over the ranks and resets the window: losses are means over the window's `micro_batches`, counted over all
  /// ranks. Collective; all ranks must have the same model. Empty without experts.
  RouterMetrics close(const models::LanguageModel& model, const comm::Group& world, const RunGroups& groups,
                      std::int64_t micro_batches);

 private:
  models::RouterStatistics sums_;
};

/// Feature for mixtures of experts: settings, biases, metrics.
std::unique_ptr<RunFeature> make_routers(const RunConfig& config);

}  // namespace tessera::train
