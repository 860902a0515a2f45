#pragma once
/// \file
/// Maps tensors of a Hugging Face folder to parameters, for rules that families share.

#include <tessera/base/value.h>

#include <string>

namespace tessera::architectures {

/// The name itself; empty for tensors that are not parameters: rotary_emb.inv_freq of old versions, a tied
/// lm_head.weight, copies in depths of multi-token prediction.
std::string llama_tensor_name(const std::string& name_in_file, const Value& config);
/// The same for families whose head is tied by default.
std::string tied_tensor_name(const std::string& name_in_file, const Value& config);

}  // namespace tessera::architectures
