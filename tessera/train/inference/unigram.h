#pragma once
/// \file
/// The yardstick of a language model: what guessing by frequency alone would score.

#include <tessera/data/dataset.h>

#include <cstdint>

namespace tessera::train {

/// Entropy of the frequencies of the scored tokens, - sum p ln p, in nats per token: the best mean loss of a model that
/// ignores the context. Looks at the first rows, about `max_tokens` tokens. Ids lie in [0, vocabulary).
double unigram_entropy(const data::Dataset& dataset, std::int64_t vocabulary,
                       std::int64_t max_tokens = std::int64_t{1} << 24);

}  // namespace tessera::train
