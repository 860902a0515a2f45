#pragma once
/// \file
/// Selects the linear maps of a model that compute in fp8 (--fp8_format; nn/linear_maps/fp8.h): those of its blocks, as
/// in Megatron-LM with Transformer Engine. Tables, heads, routers, norms, the products of attention itself, experts
/// (whose products are grouped, nn/moe/) and low-rank adapters keep their precision.

#include <tessera/base/value.h>
#include <tessera/models/language_model.h>
#include <tessera/nn/linear_maps/fp8.h>

#include <memory>

namespace tessera {
struct OptimizationConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

class RunFeature;

/// The settings of fp8. Requires a format.
nn::Fp8Options fp8_options(const OptimizationConfig& config);

/// Makes the linear maps of the model's blocks compute in fp8, except in the first and last blocks that the settings
/// keep in bf16. The state has an entry for each map in module order: call before keep_stages(), so that it is the same
/// on every rank. Returns nullptr if fp8 is off. Throws InputError if no map is left.
std::shared_ptr<nn::Fp8State> apply_fp8(models::LanguageModel& model, const OptimizationConfig& config,
                                        at::Device device);

/// The history of a state's maximum values for a checkpoint: newest first, with three values per map (input, weight,
/// gradient). Contains only steps that were taken.
Value fp8_history(const nn::Fp8State& state);
/// Restores a history. Throws InputError for a model with a different number of maps.
void set_fp8_history(nn::Fp8State& state, const Value& history);

/// Feature for --fp8_format; null: it is off.
std::unique_ptr<RunFeature> make_fp8(const RunConfig& config);

}  // namespace tessera::train
