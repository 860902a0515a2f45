#pragma once
/// \file
/// How many rows the embedding of tokens has, in a config.json.

#include <tessera/base/value.h>

#include <cstdint>

namespace tessera::config {

/// vocab_size, of a model that sees images too its text_config's; 0: it is not said.
std::int64_t vocabulary_of(const Value& hf_config);
/// The same config.json with at least `tokens` rows; where vocab_size is not said it stays so.
Value with_vocabulary(Value hf_config, std::int64_t tokens);

}  // namespace tessera::config
