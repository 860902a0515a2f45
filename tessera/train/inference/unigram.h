#pragma once
/// \file
/// The baseline of a language model: the score of guessing by token frequency alone.

#include <tessera/data/dataset.h>

#include <cstdint>

namespace tessera::train {

/// Returns the entropy of the frequencies of the scored tokens, - sum p ln p, in nats per token: the best mean loss of
/// a model that ignores the context. Reads the first rows, about `max_tokens` tokens. Ids must be in [0, vocabulary).
double unigram_entropy(const data::Dataset& dataset, std::int64_t vocabulary,
                       std::int64_t max_tokens = std::int64_t{1} << 24);

}  // namespace tessera::train
