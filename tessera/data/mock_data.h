#pragma once
/// \file
/// Synthetic tokens (--mock_data), for benchmarks and for trying out a run without data: the documents of Megatron-LM's
/// MockGPTLowLevelDataset (megatron/core/datasets/gpt_dataset.py).

#include <tessera/data/dataset.h>

#include <cstdint>
#include <memory>

namespace tessera::data {

/// Blocks of a stream of 100 000 documents, about 205 million tokens. Each document counts 1, 2, 3, ..., ends with the
/// last id of the vocabulary, and has 1 to 4095 tokens; counting wraps around to 0 before the last id. Lengths are
/// drawn from a fixed seed, so they are the same everywhere (but differ from Megatron-LM's, which NumPy draws). Nothing
/// is read or stored: rows are generated on demand. `documents`: documents that share a block do not attend to each
/// other. Throws InputError for a vocabulary of fewer than 2 tokens.
std::shared_ptr<const Dataset> made_up_blocks(std::int64_t block_size, std::int64_t vocab_size, bool documents);

}  // namespace tessera::data
