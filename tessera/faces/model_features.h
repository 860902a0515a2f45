#pragma once
/// \file
/// What `tessera train` can do with one of our models, under tessera::Trainer: fp8_format, compression_training,
/// progressive_layer_drop, data_efficiency. The features themselves are those of train/features/.

#include <tessera/comm/world.h>
#include <tessera/faces/training.h>
#include <tessera/models/language_model.h>
#include <tessera/train/core/run_plan.h>
#include <tessera/train/features/features.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::config {
struct Resolved;
}

namespace tessera::faces {

/// Not thread-safe. Its address stays.
class ModelFeatures {
 public:
  /// Before the module is divided: the features that the settings, which outlive this, ask for change it. A module of
  /// the program's own has none. Throws InputError for settings that do not fit each other (the rules of
  /// `tessera train`) or the model.
  ModelFeatures(const std::shared_ptr<torch::nn::Module>& module, const config::Resolved& settings,
                const comm::World& world);
  bool hosts() const { return model_ != nullptr; }  ///< the module is one of our models
  /// Once it is divided: where the run begins. `resumed`: empty at step 0. All of them outlive the steps. Returns lines
  /// for the log.
  std::vector<std::string> begin(Training& training, const train::RunPlan& plan, const data::Sampler& sampler,
                                 const std::optional<checkpoint::RunState>& resumed);
  /// Before the forward pass of a micro-batch; `first_row`: its place in the sample order.
  void begin_micro_batch(std::int64_t first_row);
  /// The hooks of the steps (train/features/run_feature.h).
  const train::Features& list() const { return list_; }

 private:
  const RunConfig& config_;
  const comm::World& world_;
  std::shared_ptr<models::LanguageModel> model_;  // null: the program's own
  train::Features list_;
  train::FeatureParts parts_;
  train::RunGroups groups_;
  data::Datasets no_datasets_;  // rows are the program's
  std::optional<models::LoraConfig> no_adapters_;
  std::optional<train::RunContext> run_;
};

}  // namespace tessera::faces
