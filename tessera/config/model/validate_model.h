#pragma once
/// \file
/// config/model/: the rules between settings and the sizes of the model, as far as its config.json says them: what a
/// run would find out when it has made the model.

#include <tessera/base/value.h>

#include <cstdint>

namespace tessera {
struct DataConfig;
}

namespace tessera::config {

struct Problems;
struct Resolved;

/// Tokens of a block for a model of so many positions: block_size, or 1024 (run_clm.py) and at most the positions.
/// Throws InputError when block_size or max_seq_length is longer, or a block has nothing to score.
std::int64_t choose_block_size(const DataConfig& data, std::int64_t positions);

/// Looks at a model that is named and whose config.json can be read. What only making it can tell (another family's
/// config.json, weights that do not fit it) is left to that.
void validate_model(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
