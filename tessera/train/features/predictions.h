#pragma once
/// \file
/// Multi-token prediction in a run: what it goes with, and what the log says of it.

#include <ATen/core/Tensor.h>

#include <tessera/models/language_model.h>
#include <tessera/train/core/run_groups.h>

#include <memory>
#include <vector>

namespace tessera {
struct OptimizationConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

class RunFeature;

/// Takes --mtp_loss_scaling_factor into the model, which still has all its stages. With 0 the depths' parameters are
/// frozen. Throws InputError for a factor that a model without depths is given, and beside what the depths do not go
/// with: context parallelism and preferences.
void set_up_predictions(models::LanguageModel& model, const OptimizationConfig& config, const RunGroups& groups);

/// The depths' losses between two logs, this rank's part.
class PredictionWindow {
 public:
  /// `losses` of a micro-batch (LanguageModel::take_prediction_losses), times `factor` the rank's part of the step's
  /// means.
  void add(const std::vector<at::Tensor>& losses, double factor);
  /// Sums over the steps since the last call, one per depth of the model.
  std::vector<double> take(const models::LanguageModel& model);

 private:
  std::vector<double> sums_;
};

/// Multi-token prediction in a run.
std::unique_ptr<RunFeature> make_predictions(const RunConfig& config);

}  // namespace tessera::train
