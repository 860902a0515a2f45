#pragma once
/// \file
/// Features that `tessera train` offers for our models, under tessera::Trainer: fp8_format, compression_training,
/// progressive_layer_drop, data_efficiency. The features themselves are in train/features/.

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

/// Not thread-safe. Must not be moved.
class ModelFeatures {
 public:
  /// Call before the module is divided: applies the features of the settings, which must outlive this object. The
  /// program's own module has none. Throws InputError for settings that contradict each other (the rules of `tessera
  /// train`) or do not suit the model.
  ModelFeatures(const std::shared_ptr<torch::nn::Module>& module, const config::Resolved& settings,
                const comm::World& world);
  bool hosts() const { return model_ != nullptr; }  ///< the module is one of our models
  /// Call at the start of the run, once the module has been divided. `resumed`: empty at step 0. All arguments outlive
  /// the steps. Returns lines for the log.
  std::vector<std::string> begin(Training& training, const train::RunPlan& plan, const data::Sampler& sampler,
                                 const std::optional<checkpoint::RunState>& resumed);
  /// Call before the forward pass of a micro-batch; `first_row`: its position in the sample order.
  void begin_micro_batch(std::int64_t first_row);
  /// The hooks of the steps (train/features/run_feature.h).
  const train::Features& list() const { return list_; }

 private:
  const RunConfig& config_;
  const comm::World& world_;
  std::shared_ptr<models::LanguageModel> model_;  // null: the program's own module
  train::Features list_;
  train::FeatureParts parts_;
  train::RunGroups groups_;
  data::Datasets no_datasets_;  // rows belong to the program
  std::optional<models::LoraConfig> no_adapters_;
  std::optional<train::RunContext> run_;
};

}  // namespace tessera::faces
