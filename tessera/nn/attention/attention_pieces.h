#pragma once
/// \file
/// Splits attention with documents and windows into independent calls.

#include <cstdint>
#include <vector>

#include <tessera/nn/documents.h>

namespace tessera::nn {

/// Queries [first, end) of a row attend to keys [begin, end) of it: causally (then first == begin), or through a mask.
struct Piece {
  std::int64_t row, first, end, begin;
  bool masked;
};

/// The pieces of a batch of `rows` x `length` tokens; empty if one causal call over the whole batch suffices (every row
/// one document, no effective window). A document longer than the window is cut into runs of `window` queries, each of
/// which attends to at most 2 window - 1 keys.
std::vector<Piece> attention_pieces(const DocumentStarts& documents, std::int64_t rows, std::int64_t length,
                                    std::int64_t window);

}  // namespace tessera::nn
