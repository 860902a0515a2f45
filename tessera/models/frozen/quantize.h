#pragma once
/// \file
/// models/frozen/: treatment of weights that are not trained. This header: keeps the frozen weights of a model's linear
/// maps in four or eight bits, while LoRA adapters are trained (Dettmers et al. 2023, "QLoRA").

#include <tessera/models/language_model.h>
#include <tessera/models/load.h>
#include <tessera/nn/linear_maps/quantized.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {
struct ModelConfig;
}

namespace tessera::models {

/// The configured form of frozen weights; nullopt: not quantized. Returns the four-bit form if both are requested
/// (config/rules/ refuses that combination).
std::optional<nn::QuantizedForm> quantized_form(const ModelConfig& config);

/// Keeps the weights of all linear maps in the model's blocks in few bits. Weights without memory (load_model_deferred)
/// are first read from `weights`, one after another, so that at most one is whole at a time; the memory of whole
/// weights is freed. The weights are no longer parameters. Not quantized: tables, heads and everything outside the
/// blocks, norms, biases, routers, gates with one output, experts (which are computed together), modules that are never
/// adapted (a vision tower, a projector), and trained ones: adapters, and modules trained whole (modules_to_save). All
/// parameters except these trained ones must be frozen. Call after keep_stages() and keep_experts(). Throws InputError
/// if a weight is not finite, or if there is no linear map.
void quantize(LanguageModel& model, const nn::QuantizedForm& form, const WeightSource* weights);

/// Sizes of a model's quantized weights.
struct QuantizedSizes {
  std::int64_t maps = 0;      ///< linear maps
  std::int64_t elements = 0;  ///< in their weights
  std::int64_t bytes = 0;     ///< bytes that store these elements
};
QuantizedSizes quantized_sizes(const torch::nn::Module& model);

/// "14 linear maps in nf4 with double quantization: 3.1 MiB in place of 24.0 MiB"; "": nothing is quantized.
std::string describe_quantized(const LanguageModel& model);

/// CRC-32C of the quantized weights in module order.
std::uint32_t quantized_checksum(const LanguageModel& model);

/// Turns the quantized weights back into whole, frozen parameters with the values that products have used.
void dequantize(LanguageModel& model);

}  // namespace tessera::models
