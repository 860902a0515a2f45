#pragma once
/// \file
/// The parameter that a tensor of a Hugging Face folder is for, where families share the rule.

#include <tessera/base/value.h>

#include <string>

namespace tessera::architectures {

/// The name itself. Empty for what is not a parameter: rotary_emb.inv_freq of old versions, a tied lm_head.weight,
/// copies in depths of multi-token prediction.
std::string llama_tensor_name(const std::string& name_in_file, const Value& config);
/// The same for families whose head is tied where config.json does not say.
std::string tied_tensor_name(const std::string& name_in_file, const Value& config);

}  // namespace tessera::architectures
