#pragma once
/// \file
/// Multi-token prediction in a run: checks the settings combined with it, and logs its losses.

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

/// Applies --mtp_loss_scaling_factor to the model, which still has all its stages. With 0 the depths' parameters are
/// frozen. Throws InputError if the factor is set for a model without depths, and for settings that exclude depths:
/// context parallelism and preferences.
void set_up_predictions(models::LanguageModel& model, const OptimizationConfig& config, const RunGroups& groups);

/// This rank's share of the depths' losses between two logs.
class PredictionWindow {
 public:
  /// Adds the losses of a micro-batch (LanguageModel::take_prediction_losses); times `factor` they are the rank's part
  /// of the step's means.
  void add(const std::vector<at::Tensor>& losses, double factor);
  /// Returns the sums over the steps since the last call, one per depth of the model.
  std::vector<double> take(const models::LanguageModel& model);

 private:
  std::vector<double> sums_;
};

/// Feature for multi-token prediction.
std::unique_ptr<RunFeature> make_predictions(const RunConfig& config);

}  // namespace tessera::train
