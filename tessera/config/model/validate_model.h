#pragma once
/// \file
/// config/model/: the rules between settings and the model's sizes, as far as config.json gives them: errors that would
/// otherwise appear once the model has been built.

#include <tessera/base/value.h>

#include <cstdint>

namespace tessera {
struct DataConfig;
}

namespace tessera::config {

struct Problems;
struct Resolved;

/// Tokens per block for a model with `positions` positions: block_size, or 1024 (run_clm.py) but at most `positions`.
/// Throws InputError if block_size or max_seq_length is longer, or a block has nothing to score.
std::int64_t choose_block_size(const DataConfig& data, std::int64_t positions);

/// Checks a model that is named and whose config.json can be read. Errors that only show when the model is built (an
/// unsupported family, weights that do not fit) are not checked.
void validate_model(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
