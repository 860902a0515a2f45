#pragma once
/// \file
/// Quantization of the weights that a config.json describes. This program reads unquantized weights and keeps them in
/// fp32.

#include <tessera/base/value.h>

#include <string>

namespace tessera::config {

/// Returns the config.json changed for unquantized fp32 weights: existing "torch_dtype" and "dtype" become "float32";
/// "quantization_config" and an "auto_map" of Python files in that folder are removed. Applies to nested part
/// configurations ("text_config") as well.
Value of_whole_weights(const Value& hf_config);
/// Quantization method of its weights from quantization_config ("bitsandbytes", "gptq", "fp8"); "": not quantized.
std::string quantization_of(const Value& hf_config);
/// The same for a model's folder; also reads quantize_config.json (AutoGPTQ) and quant_config.json (AutoAWQ).
std::string quantization_of_folder(const std::string& folder);
/// Error text: the folder's weights are quantized by `method`, and how to obtain unquantized ones.
std::string why_no_quantized_weights(const std::string& folder, const std::string& method);

}  // namespace tessera::config
