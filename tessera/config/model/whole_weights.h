#pragma once
/// \file
/// What a config.json says of the form of the weights beside it: this program reads whole ones and keeps them in fp32.

#include <tessera/base/value.h>

#include <string>

namespace tessera::config {

/// The same config.json for whole weights in fp32: "torch_dtype" and "dtype", where it has them, are "float32", and it
/// has no "quantization_config", nor an "auto_map" of Python files in that folder; so in its members that are
/// configurations of parts, too ("text_config").
Value of_whole_weights(const Value& hf_config);
/// How its weights are quantized, as quantization_config says ("bitsandbytes", "gptq", "fp8"); "": they are not.
std::string quantization_of(const Value& hf_config);
/// The same of a model's folder, whose quantize_config.json (AutoGPTQ) or quant_config.json (AutoAWQ) may say it, too.
std::string quantization_of_folder(const std::string& folder);
/// The text of an error: the weights of the folder are quantized by `method`, and how whole ones are had.
std::string why_no_quantized_weights(const std::string& folder, const std::string& method);

}  // namespace tessera::config
