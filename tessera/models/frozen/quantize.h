#pragma once
/// \file
/// models/frozen/: what becomes of weights that are not trained. This header: the frozen weights of a model's linear
/// maps in four or eight bits, beside which LoRA adapters are trained (Dettmers et al. 2023, "QLoRA").

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

/// How the settings want frozen weights to be kept; nothing: whole. Where both are asked for, which
/// config/rules/ refuses, four bits.
std::optional<nn::QuantizedForm> quantized_form(const ModelConfig& config);

/// The weights of all linear maps in the model's blocks are kept in few bits from now on. A weight without memory
/// (load_model_deferred) is read from `weights` first, one after the other, so that one at most is ever whole; what was
/// whole gives its memory back. They are no parameters any more. Whole stay tables, heads and whatever lies outside of
/// the blocks, norms, biases, routers, gates of one output, experts (which are computed together), what is never
/// adapted (a vision tower, a projector), and what is trained: adapters, and modules that are trained whole beside them
/// (modules_to_save). All parameters but those of adapters and of what is trained whole beside them must be frozen;
/// after keep_stages() and keep_experts(). Throws InputError where a weight is not finite, or where there is no linear
/// map.
void quantize(LanguageModel& model, const nn::QuantizedForm& form, const WeightSource* weights);

/// Sizes of what is quantized in a model.
struct QuantizedSizes {
  std::int64_t maps = 0;      ///< linear maps
  std::int64_t elements = 0;  ///< in their weights
  std::int64_t bytes = 0;     ///< what these take
};
QuantizedSizes quantized_sizes(const torch::nn::Module& model);

/// "14 linear maps in nf4 with double quantization: 3.1 MiB in place of 24.0 MiB"; "": nothing is quantized.
std::string describe_quantized(const LanguageModel& model);

/// CRC-32C of the quantized weights in the order of modules.
std::uint32_t quantized_checksum(const LanguageModel& model);

/// The quantized weights are whole parameters again, frozen, with the values that products have used.
void dequantize(LanguageModel& model);

}  // namespace tessera::models
