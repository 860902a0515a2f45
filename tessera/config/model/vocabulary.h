#pragma once
/// \file
/// Number of rows of the token embedding in a config.json.

#include <tessera/base/value.h>

#include <cstdint>

namespace tessera::config {

/// vocab_size, or a vision-language model's text_config.vocab_size; 0: not specified.
std::int64_t vocabulary_of(const Value& hf_config);
/// Returns the config.json with at least `tokens` rows; an unspecified vocab_size stays unspecified.
Value with_vocabulary(Value hf_config, std::int64_t tokens);

}  // namespace tessera::config
