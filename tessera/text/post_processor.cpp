#include <tessera/text/post_processor.h>

#include <algorithm>
#include <span>
#include <utility>

namespace tessera::text {
namespace {

/// How many ids to keep of each of two texts so that at most `most` remain in total; the shorter text is kept whole if
/// possible.
std::pair<std::size_t, std::size_t> longest_first(std::size_t a, std::size_t b, std::size_t most) {
  if (a + b <= most) return {a, b};
  const bool swapped = a > b;
  if (swapped) std::swap(a, b);
  b = a > most ? a : std::max(a, most - a);
  if (a + b > most) {
    a = most / 2;
    b = a + most % 2;
  }
  if (swapped) std::swap(a, b);
  return {a, b};
}

std::size_t special_count(const std::vector<TemplatePiece>& pieces) {
  std::size_t count = 0;
  for (const TemplatePiece& piece : pieces) count += piece.ids.size();
  return count;
}

/// Maximum number of text ids besides `special` special tokens.
std::size_t room(std::int64_t most_ids, std::size_t special) {
  if (most_ids <= 0) return static_cast<std::size_t>(-1) / 4;
  return static_cast<std::size_t>(std::max(most_ids - static_cast<std::int64_t>(special), std::int64_t{0}));
}

Encoding filled(const std::vector<TemplatePiece>& pieces, std::span<const std::int32_t> a,
                std::span<const std::int32_t> b) {
  Encoding out;
  for (const TemplatePiece& piece : pieces) {
    const auto ids = piece.text == 'A' ? a : piece.text == 'B' ? b : std::span<const std::int32_t>(piece.ids);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.types.insert(out.types.end(), ids.size(), piece.type);
  }
  return out;
}

}  // namespace

Encoding encode_one(const PostProcessor& around, std::vector<std::int32_t> ids, std::int64_t most_ids) {
  ids.resize(std::min(ids.size(), room(most_ids, special_count(around.single))));
  return filled(around.single, ids, {});
}

Encoding encode_two(const PostProcessor& around, std::vector<std::int32_t> first, std::vector<std::int32_t> second,
                    std::int64_t most_ids) {
  const auto [most_first, most_second] =
      longest_first(first.size(), second.size(), room(most_ids, special_count(around.pair)));
  first.resize(most_first);
  second.resize(most_second);
  return filled(around.pair, first, second);
}

}  // namespace tessera::text
