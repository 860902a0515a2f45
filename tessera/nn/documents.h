#pragma once
/// \file
/// Which tokens of a packed batch belong together.

#include <cstdint>
#include <vector>

namespace tessera::nn {

/// Flat positions b * T + t at which documents begin: ascending, the first of every row among them (0, T, 2 T, ...).
/// A token sees only its own document, and positions count from each document's start. Empty: every row is one
/// document. (Padding needs no mask in a causal model: it stands at the end of a row, where no scored token sees it.)
using DocumentStarts = std::vector<std::int64_t>;

}  // namespace tessera::nn
