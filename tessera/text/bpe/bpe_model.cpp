#include <tessera/text/bpe/bpe_model.h>
#include <algorithm>
#include <bit>
#include <queue>

namespace tessera::text {

namespace {

constexpr std::size_t short_word = 48;  // for longer words the heap is faster than the scan

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::uint64_t mix(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ key >> 32;
}

}  // namespace

BpeModel::BpeModel(const std::array<std::int32_t, 256>& byte_ids, std::span<const Merge> merges, Unknown unknown)
    : byte_ids_(byte_ids), unknown_(unknown), slots_(std::bit_ceil(2 * merges.size() + 2)) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    std::size_t at = mix(key) & mask;
    while (slots_[at].pair != empty && slots_[at].pair != key) at = (at + 1) & mask;
    slots_[at] = {key, static_cast<std::uint32_t>(rank), merges[rank].result};
  }
}

const BpeModel::Slot* BpeModel::find(std::int32_t left, std::int32_t right) const {
  const std::size_t mask = slots_.size() - 1;
  const std::uint64_t key = pair_key(left, right);
  for (std::size_t at = mix(key) & mask;; at = (at + 1) & mask) {
    if (slots_[at].pair == key) return &slots_[at];
    if (slots_[at].pair == empty) return nullptr;
  }
}

std::uint32_t BpeModel::rank(std::int32_t left, std::int32_t right) const {
  const Slot* slot = find(left, right);
  return slot ? slot->rank : no_rank;
}

void BpeModel::encode_word(std::string_view bytes, std::vector<std::int32_t>& out) const {
  std::array<std::int32_t, short_word> few;
  std::vector<std::int32_t> many;
  std::int32_t* symbols = few.data();
  if (bytes.size() > few.size()) {
    many.resize(bytes.size());
    symbols = many.data();
  }
  std::size_t count = 0;
  bool in_unknown = false;
  for (const char byte : bytes) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id != no_token)
      symbols[count++] = id;
    else if (unknown_.id != no_token && !(in_unknown && unknown_.fuse))
      symbols[count++] = unknown_.id;
    in_unknown = id == no_token;
  }
  join({symbols, count}, out);
}

void BpeModel::join(std::span<std::int32_t> symbols, std::vector<std::int32_t>& out) const {
  symbols.size() <= short_word ? join_short(symbols, out) : join_long(symbols, out);
}

void BpeModel::join_short(std::span<std::int32_t> symbols, std::vector<std::int32_t>& out) const {
  std::array<const Slot*, short_word> merge;  // merge[i]: the merge of symbols i and i + 1
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) merge[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = count;
    std::uint32_t best_rank = no_rank;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (merge[i] && merge[i]->rank < best_rank) {
        best_rank = merge[i]->rank;
        best = i;
      }
    }
    if (best == count) break;
    symbols[best] = merge[best]->result;
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(merge.begin() + best + 1, merge.begin() + count - 1, merge.begin() + best);
    --count;
    if (best > 0) merge[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merge[best] = find(symbols[best], symbols[best + 1]);
  }
  out.insert(out.end(), symbols.begin(), symbols.begin() + count);
}

void BpeModel::join_long(std::span<std::int32_t> symbols, std::vector<std::int32_t>& out) const {
  // A doubly linked list of symbols, and a heap of possibly stale joins: a join is valid if its two symbols are still
  // adjacent and have the same ids as before.
  constexpr std::uint32_t none = ~std::uint32_t{0};
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> next(count), previous(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : none;
    previous[i] = i > 0 ? i - 1 : none;
  }
  struct Join {
    std::uint32_t rank, at;
    std::uint64_t pair;
    bool operator>(const Join& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  std::priority_queue<Join, std::vector<Join>, std::greater<>> joins;
  const auto offer = [&](std::uint32_t at) {
    if (at == none || next[at] == none) return;
    const std::int32_t left = symbols[at], right = symbols[next[at]];
    if (const std::uint32_t r = rank(left, right); r != no_rank) joins.push({r, at, pair_key(left, right)});
  };
  for (std::uint32_t i = 0; i + 1 < count; ++i) offer(i);
  while (!joins.empty()) {
    const Join join = joins.top();
    joins.pop();
    const std::uint32_t at = join.at, right = next[at];
    if (symbols[at] == no_token || right == none || pair_key(symbols[at], symbols[right]) != join.pair) continue;
    symbols[at] = find(symbols[at], symbols[right])->result;
    symbols[right] = no_token;
    next[at] = next[right];
    if (next[at] != none) previous[next[at]] = at;
    offer(previous[at]);
    offer(at);
  }
  for (std::uint32_t i = 0; i != none; i = next[i]) out.push_back(symbols[i]);
}

}  // namespace tessera::text
