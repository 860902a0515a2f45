#pragma once
/// \file
/// Tokens that nobody wrote (--mock_data), to measure a run or to see that it runs before there are data: the documents
/// of Megatron-LM's MockGPTLowLevelDataset (megatron/core/datasets/gpt_dataset.py).

#include <tessera/data/dataset.h>

#include <cstdint>
#include <memory>

namespace tessera::data {

/// Blocks of a stream of 100 000 documents, about 205 million tokens: each counts 1, 2, 3, ..., ends with the last id
/// of the vocabulary, and is 1 to 4095 tokens long. Counting begins again with 0 where the ids before that one are used
/// up. Lengths are drawn from a fixed seed: the same everywhere (not Megatron-LM's, which NumPy draws). Nothing is read
/// and no token is kept: a row is made when it is asked for. `documents`: they do not see each other where they share a
/// block. Throws InputError for a vocabulary of less than 2 tokens.
std::shared_ptr<const Dataset> made_up_blocks(std::int64_t block_size, std::int64_t vocab_size, bool documents);

}  // namespace tessera::data
