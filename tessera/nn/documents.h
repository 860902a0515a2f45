#pragma once
/// \file
/// The documents in a packed batch: groups of tokens that belong together.

#include <cstdint>
#include <vector>

namespace tessera::nn {

/// Flat positions b * T + t at which documents begin: ascending, including the first of every row (0, T, 2 T, ...). A
/// token attends only to its own document, and positions count from each document's start. Empty: every row is one
/// document. (Padding needs no mask in a causal model: it is at the end of a row, where no scored token attends to it.)
using DocumentStarts = std::vector<std::int64_t>;

}  // namespace tessera::nn
