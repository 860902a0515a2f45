#pragma once
/// \file
/// FLOP of blocks that several families have.

#include <tessera/models/language_model.h>

#include <cstdint>

namespace tessera::models {

/// Of a block of width C whose attention has four products [C, C] (queries, keys, values, output) and whose MLP has two
/// of C and `inner` (GPT-2, BERT): FLOP per token of a forward pass over rows of `block_size` tokens.
BlockFlops plain_block_flops(std::int64_t width, std::int64_t inner, std::int64_t block_size);

}  // namespace tessera::models
