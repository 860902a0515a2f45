#include <ATen/ATen.h>

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/nn/attention.h>
#include <tessera/nn/attention/attention_pieces.h>

namespace tessera::nn {
namespace {

/// One document: a row, and its tokens [begin, end).
struct Extent {
  std::int64_t row, begin, end;
};

std::vector<Extent> extents(const DocumentStarts& documents, std::int64_t rows, std::int64_t length) {
  std::vector<Extent> found;
  if (documents.empty()) {
    for (std::int64_t row = 0; row < rows; ++row) found.push_back({row, 0, length});
    return found;
  }
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::int64_t start = documents[i], row = start / length, row_end = (row + 1) * length;
    const std::int64_t end = i + 1 < documents.size() ? std::min(documents[i + 1], row_end) : row_end;
    found.push_back({row, start - row * length, end - row * length});
  }
  return found;
}

}  // namespace

void check_documents(const DocumentStarts& documents, std::int64_t rows, std::int64_t length) {
  if (documents.empty()) return;
  TESSERA_CHECK(std::adjacent_find(documents.begin(), documents.end(), std::greater_equal<>()) == documents.end(),
                "document starts must ascend");
  TESSERA_CHECK(documents.front() == 0 && documents.back() < rows * length, "document starts range from ",
                documents.front(), " to ", documents.back(), " in a batch of ", rows, " x ", length, " tokens");
  for (std::int64_t row = 0; row < rows; ++row)
    TESSERA_CHECK(std::binary_search(documents.begin(), documents.end(), row * length), "row ", row,
                  " does not start with a document");
}

std::vector<Piece> attention_pieces(const DocumentStarts& documents, std::int64_t rows, std::int64_t length,
                                    std::int64_t window) {
  const bool whole_rows = static_cast<std::int64_t>(documents.size()) <= rows;
  if (whole_rows && (window == 0 || window >= length)) return {};
  std::vector<Piece> pieces;
  for (const Extent& e : extents(documents, rows, length)) {
    if (window == 0 || window >= e.end - e.begin) {
      pieces.push_back({e.row, e.begin, e.end, e.begin, false});
      continue;
    }
    for (std::int64_t first = e.begin; first < e.end; first += window)
      pieces.push_back({e.row, first, std::min(first + window, e.end), std::max(e.begin, first - window + 1), true});
  }
  return pieces;
}

at::Tensor document_positions(const DocumentStarts& documents, std::int64_t rows, std::int64_t length) {
  at::Tensor positions = at::empty({rows * length}, at::kLong);
  auto* out = positions.mutable_data_ptr<std::int64_t>();
  for (const Extent& e : extents(documents, rows, length))
    for (std::int64_t t = e.begin; t < e.end; ++t) out[e.row * length + t] = t - e.begin;
  return positions;
}

}  // namespace tessera::nn
