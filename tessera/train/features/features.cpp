#include <tessera/train/features/features.h>

#include <tessera/base/error.h>
#include <tessera/train/features/block_routing.h>
#include <tessera/train/features/compression.h>
#include <tessera/train/features/fp8.h>
#include <tessera/train/features/noise_scale.h>
#include <tessera/train/features/predictions.h>
#include <tessera/train/features/preferences.h>
#include <tessera/train/features/routers.h>
#include <tessera/train/features/row_balance.h>
#include <tessera/train/features/streaming.h>

#include <utility>

namespace tessera::train {
namespace {

/// To remove a feature, remove its files and its lines here.
constexpr std::unique_ptr<RunFeature> (*features[])(const RunConfig&) = {
    // --fp8_format: comes first because it numbers the linear maps while the model still has all of them
    make_fp8,
    make_compression,  // --compression_training: accepts maps whose products are in fp8; refuses adapters
    // experts: acts before rows and passes are counted; refuses settings of experts for other models
    make_routers,
    make_predictions,    // multi-token prediction: freezes depths before the ranks keep only their stages
    make_row_balance,    // --balance_batches: gives ranks unequal numbers of rows
    make_noise_scale,    // --gradient_noise_scale: sees gradients before they are reduced
    make_block_routing,  // --progressive_layer_drop, --data_efficiency: wraps the recomputation of blocks
    make_preferences,    // --preference_loss: evaluates its reference after all changes to the model
    make_streaming,      // --streaming: saves and restores the stream's position
};

/// Features that need only the model and the steps.
constexpr std::unique_ptr<RunFeature> (*of_model_alone[])(const RunConfig&) = {make_fp8, make_compression,
                                                                               make_block_routing};

}  // namespace

Features Features::of(const RunConfig& config) { return make_all(features, config); }

Features Features::of_model(const RunConfig& config) { return make_all(of_model_alone, config); }

Features Features::make_all(std::span<const MakeFeature> makers, const RunConfig& config) {
  Features all;
  for (const MakeFeature make : makers)
    if (auto feature = make(config)) all.add(std::move(feature));
  return all;
}

void Features::require_none_within_step(const models::LanguageModel& model) const {
  each_within_step([&](const MicroBatchFeature& feature) {
    if (const std::string what = feature.acts_on(model); !what.empty())
      throw InputError(concat("device xla: ", what, " acts within a step, which is compiled as a whole; remove it"));
  });
}

}  // namespace tessera::train
