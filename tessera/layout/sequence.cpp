#include <tessera/layout/sequence.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include <tessera/base/error.h>

namespace tessera::layout {
namespace {

/// Tokens [begin, end) of a row, stored at [local, local + end - begin) on a ring rank.
struct Run {
  std::int64_t begin, end, local;
  std::int64_t size() const { return end - begin; }
};

/// Returns the parts of a ring rank's ranges within [begin, end), with their local positions.
std::vector<Run> runs_in(const std::vector<Range>& ranges, std::int64_t begin, std::int64_t end) {
  std::vector<Run> runs;
  std::int64_t local = 0;
  for (const Range& range : ranges) {
    const Range shared = intersect(range, {begin, end});
    if (shared.begin < shared.end) runs.push_back({shared.begin, shared.end, local + shared.begin - range.begin});
    local += range.end - range.begin;
  }
  return runs;
}

/// Splits a run into its first `count` tokens and the rest.
std::pair<Run, Run> split(const Run& run, std::int64_t count) {
  return {{run.begin, run.begin + count, run.local}, {run.begin + count, run.end, run.local + count}};
}

void add_full(std::vector<Tile>& out, const Run& q, const Run& k) {
  if (q.size() > 0 && k.size() > 0)
    out.push_back({Tile::Kind::full, Tile::every_row, q.local, q.size(), k.local, k.size(), 0});
}

/// Adds the tiles of one run of queries and one run of keys of the same document, with a causal mask.
void add_causal(std::vector<Tile>& out, Run q, Run k) {
  if (k.end <= q.begin) return add_full(out, q, k);
  if (k.begin >= q.end) return;
  if (k.begin < q.begin) {  // keys before all queries
    const auto [before, rest] = split(k, q.begin - k.begin);
    add_full(out, q, before);
    k = rest;
  }
  if (q.begin < k.begin) q = split(q, k.begin - q.begin).second;  // queries without visible keys
  const std::int64_t both = std::min(q.size(), k.size());
  out.push_back({Tile::Kind::causal, Tile::every_row, q.local, both, k.local, both, 0});
  add_full(out, split(q, both).second, split(k, both).first);
}

/// The same with a window: splits queries into runs of `window`, so that each run sees at most 2 window - 1 keys.
void add_window(std::vector<Tile>& out, const Run& queries, const Run& keys, std::int64_t window) {
  Run rest = queries;
  while (rest.size() > 0) {
    const auto [q, later] = split(rest, std::min(window, rest.size()));
    rest = later;
    const std::int64_t first = std::max(keys.begin, q.begin - window + 1), last = std::min(keys.end, q.end);
    if (first >= last) continue;
    const Run k = split(split(keys, first - keys.begin).second, last - first).first;
    if (q.end - window <= k.begin) {  // the last query still sees the first key
      add_causal(out, q, k);
      continue;
    }
    const std::int64_t from = std::max(q.begin, k.begin), to = std::min(q.end, k.end + window - 1);
    if (from >= to) continue;
    const Run seeing = split(split(q, from - q.begin).second, to - from).first;
    out.push_back(
        {Tile::Kind::band, Tile::every_row, seeing.local, seeing.size(), k.local, k.size(), seeing.begin - k.begin});
  }
}

/// Returns the union of two tiles if it is a single tile.
std::optional<Tile> joined(const Tile& a, const Tile& b) {
  if (a.kind != Tile::Kind::full || b.kind != Tile::Kind::full) return std::nullopt;
  Tile both = a;
  if (a.key == b.key && a.keys == b.keys && a.query + a.queries == b.query) {
    both.queries += b.queries;
    return both;
  }
  if (a.query == b.query && a.queries == b.queries && a.key + a.keys == b.key) {
    both.keys += b.keys;
    return both;
  }
  return std::nullopt;
}

/// A causal tile, the full tile below it and the next causal tile form one larger causal tile.
std::optional<Tile> joined(const Tile& first, const Tile& below, const Tile& second) {
  const bool kinds =
      first.kind == Tile::Kind::causal && below.kind == Tile::Kind::full && second.kind == Tile::Kind::causal;
  const bool places = below.key == first.key && below.keys == first.keys && second.key == first.key + first.keys &&
                      below.query == first.query + first.queries && second.query == below.query &&
                      second.queries == below.queries;
  if (!kinds || !places) return std::nullopt;
  Tile all = first;
  all.queries += second.queries;
  all.keys += second.keys;
  return all;
}

/// Merges tiles into fewer, larger ones with the same pairs.
std::vector<Tile> merged(std::vector<Tile> tiles) {
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i + 1 < tiles.size() && !changed; ++i) {
      const auto at = tiles.begin() + static_cast<std::ptrdiff_t>(i);
      if (const auto two = joined(tiles[i], tiles[i + 1])) {
        tiles[i] = *two;
        tiles.erase(at + 1);
        changed = true;
      } else if (i + 2 < tiles.size()) {
        if (const auto three = joined(tiles[i], tiles[i + 1], tiles[i + 2])) {
          tiles[i] = *three;
          tiles.erase(at + 1, at + 3);
          changed = true;
        }
      }
    }
  }
  return tiles;
}

/// Adds the tiles of a row's document [begin, end); keys end at `length`.
std::vector<Tile> tiles_of_document(const std::vector<Range>& queries, const std::vector<Range>& keys,
                                    const Sight& sight, std::int64_t begin, std::int64_t end, std::int64_t length) {
  const std::vector<Run> query_runs = runs_in(queries, begin, end),
                         key_runs = runs_in(keys, begin, std::min(end, length));
  std::vector<Tile> found;
  for (const Run& q : query_runs)
    for (const Run& k : key_runs) {
      if (!sight.causal)
        add_full(found, q, k);
      else if (sight.window == 0 || sight.window >= end - begin)
        add_causal(found, q, k);
      else
        add_window(found, q, k, sight.window);
    }
  return merged(std::move(found));
}

/// Returns the complete list of documents; by default, one per row.
std::vector<std::int64_t> starts_of(const SequenceCut& cut, std::int64_t rows, const Sight& sight) {
  if (!sight.documents.empty()) return sight.documents;
  std::vector<std::int64_t> starts;
  for (std::int64_t row = 0; row < rows; ++row) starts.push_back(row * cut.length);
  return starts;
}

}  // namespace

int head_ranks_of(ContextMethod method, int ranks, int wanted) {
  if (method == ContextMethod::a2a) return ranks;
  if (method != ContextMethod::a2a_p2p) return 1;
  int found = wanted;
  for (int divisor = 2; found == 0 && divisor < ranks; ++divisor)
    if (ranks % divisor == 0) found = divisor;
  if (found < 2 || found >= ranks || ranks % found != 0)
    throw InputError(
        concat("a2a+p2p divides the context-parallel ranks into two levels of at least two ranks each, but ", ranks,
               " ranks have no level of ", found == 0 ? std::string("2 or more") : concat(found),
               " with a second one; use p2p or a2a, or a number of ranks such as 4"));
  return found;
}

std::int64_t padded_length(std::int64_t length, int ranks, int head_ranks) {
  TESSERA_CHECK(length >= 0 && ranks >= 1 && head_ranks >= 1 && ranks % head_ranks == 0, "a sequence of ", length,
                " tokens over ", ranks, " ranks, ", head_ranks, " of them sharing heads");
  const std::int64_t rings = ranks / head_ranks;
  const std::int64_t unit = std::lcm<std::int64_t>(ranks, rings > 1 ? 2 * rings : 1);
  return (length + unit - 1) / unit * unit;
}

SequenceCut cut_sequence(std::int64_t length, int ranks, int head_ranks) {
  const std::int64_t next = padded_length(length, ranks, head_ranks);
  const int rings = ranks / head_ranks;
  if (next != length)
    throw InputError(concat("a sequence of ", length, " tokens cannot be cut for context parallelism over ", ranks,
                            " ranks: it must be a multiple of ", ranks,
                            rings > 1 ? concat(" and of 2 x ", rings, " chunks") : std::string(),
                            "; the next possible length is ", std::max<std::int64_t>(next, 1)));
  return {length, ranks, head_ranks};
}

std::vector<Range> tokens_of_ring(const SequenceCut& cut, int ring_rank) {
  const std::int64_t p = cut.ring_ranks();
  TESSERA_CHECK(ring_rank >= 0 && ring_rank < p, "ring rank ", ring_rank, " of ", p);
  if (p == 1) return {{0, cut.length}};
  const std::int64_t chunk = cut.length / (2 * p), first = ring_rank, second = 2 * p - 1 - ring_rank;
  if (second == first + 1) return {{first * chunk, (second + 1) * chunk}};
  return {{first * chunk, (first + 1) * chunk}, {second * chunk, (second + 1) * chunk}};
}

std::vector<Range> tokens_of(const SequenceCut& cut, int rank) {
  TESSERA_CHECK(rank >= 0 && rank < cut.ranks, "context-parallel rank ", rank, " of ", cut.ranks);
  const std::int64_t begin = rank % cut.head_ranks * cut.local(), end = begin + cut.local();
  std::vector<Range> mine;
  std::int64_t local = 0;
  for (const Range& range : tokens_of_ring(cut, rank / cut.head_ranks)) {
    const Range shared = intersect({local, local + range.end - range.begin}, {begin, end});
    if (shared.begin < shared.end)
      mine.push_back({range.begin + shared.begin - local, range.begin + shared.end - local});
    local += range.end - range.begin;
  }
  return mine;
}

void check_sight(const SequenceCut& cut, std::int64_t rows, const Sight& sight) {
  const auto& starts = sight.documents;
  if (!starts.empty()) {
    const bool ascend = std::adjacent_find(starts.begin(), starts.end(), std::greater_equal<>()) == starts.end();
    if (!ascend || starts.front() != 0 || starts.back() >= rows * cut.length)
      throw InputError(concat("document starts must ascend from 0 and be within ", rows, " rows of ", cut.length,
                              " tokens; they run from ", starts.front(), " to ", starts.back()));
    for (std::int64_t row = 0; row < rows; ++row)
      if (!std::binary_search(starts.begin(), starts.end(), row * cut.length))
        throw InputError(concat("row ", row, " of ", cut.length, " tokens does not begin with a document"));
  }
  if (!sight.lengths.empty()) {
    if (static_cast<std::int64_t>(sight.lengths.size()) != rows)
      throw InputError(concat(sight.lengths.size(), " lengths for ", rows, " rows"));
    for (const std::int64_t length : sight.lengths)
      if (length < 0 || length > cut.length)
        throw InputError(concat("a row of ", length, " tokens in a sequence of ", cut.length));
  }
  if (sight.window < 0 || (sight.window > 0 && !sight.causal))
    throw InputError(concat("a window of ", sight.window, " tokens: it must be positive, and attention causal"));
}

std::vector<Tile> tiles(const SequenceCut& cut, std::int64_t rows, const Sight& sight, int query_ring_rank,
                        int key_ring_rank) {
  check_sight(cut, rows, sight);
  const std::vector<Range> queries = tokens_of_ring(cut, query_ring_rank), keys = tokens_of_ring(cut, key_ring_rank);
  const bool rows_differ =
      static_cast<std::int64_t>(sight.documents.size()) > rows ||
      std::adjacent_find(sight.lengths.begin(), sight.lengths.end(), std::not_equal_to<>()) != sight.lengths.end();
  if (!rows_differ) {
    if (rows == 0) return {};
    return tiles_of_document(queries, keys, sight, 0, cut.length,
                             sight.lengths.empty() ? cut.length : sight.lengths.front());
  }
  std::vector<Tile> all;
  const std::vector<std::int64_t> starts = starts_of(cut, rows, sight);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t row = starts[i] / cut.length, row_start = row * cut.length;
    const std::int64_t end = i + 1 < starts.size() ? std::min(starts[i + 1] - row_start, cut.length) : cut.length;
    const std::int64_t length = sight.lengths.empty() ? cut.length : sight.lengths[static_cast<std::size_t>(row)];
    for (Tile tile : tiles_of_document(queries, keys, sight, starts[i] - row_start, end, length)) {
      tile.row = row;
      all.push_back(tile);
    }
  }
  return all;
}

std::vector<std::vector<int>> head_groups(const std::vector<int>& ranks, int head_ranks) {
  std::vector<std::vector<int>> groups;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i % static_cast<std::size_t>(head_ranks) == 0) groups.emplace_back();
    groups.back().push_back(ranks[i]);
  }
  return groups;
}

std::vector<std::vector<int>> ring_groups(const std::vector<int>& ranks, int head_ranks) {
  std::vector<std::vector<int>> groups(static_cast<std::size_t>(head_ranks));
  for (std::size_t i = 0; i < ranks.size(); ++i) groups[i % groups.size()].push_back(ranks[i]);
  return groups;
}

std::vector<std::vector<int>> itineraries(const SequenceCut& cut, std::int64_t rows, const Sight& sight) {
  const int p = cut.ring_ranks();
  std::vector<std::vector<int>> ways(static_cast<std::size_t>(p));
  for (int owner = 0; owner < p; ++owner)
    for (int distance = 1; distance < p; ++distance) {
      const int visitor = (owner + distance) % p;
      if (!tiles(cut, rows, sight, visitor, owner).empty()) ways[static_cast<std::size_t>(owner)].push_back(visitor);
    }
  return ways;
}

}  // namespace tessera::layout
