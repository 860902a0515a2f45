#include <tessera/data/contents.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <tessera/base/text.h>
#include <tessera/corpus/cache/content_hash.h>
#include <tessera/data/blend.h>
#include <tessera/data/dataset.h>

namespace tessera::data {
namespace {

constexpr std::int64_t tokens_hashed_whole = 1 << 20;
constexpr std::int64_t rows_looked_at = 256;
constexpr std::size_t digits_shown = 16;

void append_numbers(std::string& bytes, const std::vector<std::int64_t>& numbers) {
  bytes += concat(numbers.size(), ":");
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t));
}

}  // namespace

std::string describe_contents(const Dataset& dataset) {
  if (dataset.streamed()) return "";
  const std::int64_t rows = dataset.blend() != nullptr ? dataset.blend()->rows() : dataset.size();
  const bool whole = rows <= tokens_hashed_whole / std::max<std::int64_t>(1, dataset.max_length());
  const std::int64_t looked_at = whole ? rows : std::min(rows, rows_looked_at);
  std::string bytes;  // one row's
  std::string hashes;
  for (std::int64_t i = 0; i < looked_at; ++i) {
    const Row row = dataset.read(looked_at == rows ? i : i * (rows - 1) / (looked_at - 1));
    bytes.clear();
    append_numbers(bytes, row.ids);
    append_numbers(bytes, row.labels);
    hashes += corpus::hash_of(bytes).hex();
  }
  return concat(rows, rows == 1 ? " row" : " rows", ", contents ",
                corpus::hash_of(hashes).hex().substr(0, digits_shown));
}

}  // namespace tessera::data
