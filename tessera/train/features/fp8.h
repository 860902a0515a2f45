#pragma once
/// \file
/// Which linear maps of a model compute in fp8 (--fp8_format; nn/linear_maps/fp8.h): those of its blocks, as in
/// Megatron-LM with Transformer Engine. Tables, heads, routers, norms, the products of attention itself, experts (whose
/// products are grouped, nn/moe/) and low-rank adapters stay as they are.

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

/// The settings of fp8. Needs a format.
nn::Fp8Options fp8_options(const OptimizationConfig& config);

/// The linear maps of the model's blocks compute in fp8 from now on, apart from the first and the last blocks that the
/// settings leave in bf16. The state has a place for each of them in the order of modules: before keep_stages(), so
/// that it is the same on every rank. nullptr: the settings ask for none. Throws InputError where no map is left.
std::shared_ptr<nn::Fp8State> apply_fp8(models::LanguageModel& model, const OptimizationConfig& config,
                                        at::Device device);

/// The history of a state's largest values, for a checkpoint: the newest first, by map input, weight and gradient.
/// Steps that were not made yet are left out.
Value fp8_history(const nn::Fp8State& state);
/// And back. Throws InputError for one of a model with another number of maps.
void set_fp8_history(nn::Fp8State& state, const Value& history);

/// --fp8_format in a run; null: it is off.
std::unique_ptr<RunFeature> make_fp8(const RunConfig& config);

}  // namespace tessera::train
