#include <tessera/corpus/cache/token_store.h>

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::corpus {
namespace {

/// Returns the shard that contains a position: the last non-empty shard that begins at or before it.
std::size_t shard_of(const std::vector<std::int64_t>& begins, std::int64_t position) {
  return static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), position) - begins.begin()) - 1;
}

}  // namespace

TokenStore::TokenStore(const std::string& folder, const std::vector<std::string>& names,
                       std::shared_ptr<const void> kept)
    : kept_(std::move(kept)) {
  for (const std::string& name : names) {
    shards_.emplace_back(path_join(folder, name));
    token_begins_.push_back(token_begins_.back() + static_cast<std::int64_t>(shards_.back().tokens()));
    record_begins_.push_back(record_begins_.back() + static_cast<std::int64_t>(shards_.back().records()));
  }
}

void TokenStore::read(std::int64_t begin, std::int64_t count, std::vector<std::int64_t>& out) const {
  TESSERA_CHECK(begin >= 0 && count >= 0 && count <= tokens() - begin, "tokens [", begin, ", ", begin, " + ", count,
                ") of ", tokens());
  for (std::size_t i = count > 0 ? shard_of(token_begins_, begin) : 0; count > 0; ++i) {
    const std::int64_t part = std::min(count, token_begins_[i + 1] - begin);
    shards_[i].read(static_cast<std::uint64_t>(begin - token_begins_[i]), static_cast<std::uint64_t>(part), out);
    give_back(i);
    begin += part;
    count -= part;
  }
}

std::vector<std::int64_t> TokenStore::starts_in(std::int64_t begin, std::int64_t count) const {
  std::vector<std::int64_t> starts;
  if (count == 0) return starts;
  const std::int64_t end = begin + count;
  for (std::size_t i = shard_of(token_begins_, begin); i < shards_.size() && token_begins_[i] < end; ++i) {
    const Shard& shard = shards_[i];
    const std::int64_t from = std::max<std::int64_t>(begin - token_begins_[i], 0);
    for (std::uint64_t r = shard.first_record_from(static_cast<std::uint64_t>(from)); r < shard.records(); ++r) {
      const std::int64_t at = token_begins_[i] + static_cast<std::int64_t>(shard.record_begin(r));
      if (at >= end) break;
      if (starts.empty() || starts.back() != at - begin) starts.push_back(at - begin);  // an empty record has no tokens
    }
    give_back(i);
  }
  return starts;
}

/// Called after a read. Rows in a shuffled order are in a different shard each time, so pages are released at once;
/// rows in file order are adjacent, and the next read would have to map the pages again.
void TokenStore::give_back(std::size_t shard) const {
  constexpr std::int64_t at_once = 16;  // number of reads, each of which may have mapped a few megabytes
  const std::size_t before = last_read_.exchange(shard, std::memory_order_relaxed);
  if (before < shards_.size() && before != shard) shards_[before].forget();
  if (before != shard) reads_ = 0;
  if (++reads_ % at_once == 0) shards_[shard].forget();
}

TokenStore::Place TokenStore::place_of(std::int64_t record) const {
  TESSERA_CHECK(record >= 0 && record < records(), "record ", record, " of ", records());
  const std::size_t i = shard_of(record_begins_, record);
  return {&shards_[i], static_cast<std::uint64_t>(record - record_begins_[i])};
}

std::int64_t TokenStore::length(std::int64_t record) const {
  const auto [shard, at] = place_of(record);
  return static_cast<std::int64_t>(shard->record_begin(at + 1)) - static_cast<std::int64_t>(shard->record_begin(at));
}

void TokenStore::read_record(std::int64_t record, std::vector<std::int64_t>& ids, std::vector<bool>& scored) const {
  const auto [shard, at] = place_of(record);
  const std::uint64_t begin = shard->record_begin(at), end = shard->record_begin(at + 1);
  TESSERA_CHECK(begin <= end, "record ", record, " has tokens [", begin, ", ", end, ") of its file: it is damaged");
  shard->read(begin, end - begin, ids);
  shard->read_marks(begin, end - begin, scored);
  give_back(static_cast<std::size_t>(shard - shards_.data()));
}

void TokenStore::for_each_length(std::int64_t first, std::int64_t count,
                                 const std::function<void(std::int64_t)>& take) const {
  TESSERA_CHECK(first >= 0 && count >= 0 && count <= records() - first, "records [", first, ", ", first, " + ", count,
                ") of ", records());
  for (std::size_t i = count > 0 ? shard_of(record_begins_, first) : 0; count > 0; ++i) {
    const std::int64_t part = std::min(count, record_begins_[i + 1] - first);
    auto at = static_cast<std::uint64_t>(first - record_begins_[i]);
    std::uint64_t begin = shards_[i].record_begin(at);
    for (std::int64_t done = 0; done < part; ++done) {
      const std::uint64_t end = shards_[i].record_begin(++at);
      take(static_cast<std::int64_t>(end) - static_cast<std::int64_t>(begin));
      begin = end;
    }
    shards_[i].forget();
    first += part;
    count -= part;
  }
}

}  // namespace tessera::corpus
