#pragma once
/// \file
/// All tokens of one cache entry as one stream, and its records.

#include <tessera/corpus/cache/descriptor.h>
#include <tessera/corpus/cache/shard.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::corpus {

/// Concatenated shards. A record is an example or, in a stream of text, a file; an example is stored entirely in one
/// shard. Immutable: any number of threads.
class TokenStore {
 public:
  /// Maps the files FOLDER/name. `kept` is an object that must live as long as the store, e.g. the lock that marks the
  /// entry as in use.
  TokenStore(const std::string& folder, const std::vector<std::string>& names, std::shared_ptr<const void> kept);

  std::int64_t tokens() const { return token_begins_.back(); }
  std::int64_t records() const { return record_begins_.back(); }

  /// Appends tokens [begin, begin + count) of the stream.
  void read(std::int64_t begin, std::int64_t count, std::vector<std::int64_t>& out) const;
  /// The positions in [begin, begin + count) at which records begin, relative to `begin`, ascending.
  std::vector<std::int64_t> starts_in(std::int64_t begin, std::int64_t count) const;

  // For examples:
  std::int64_t length(std::int64_t record) const;
  /// Appends the ids of a record, and whether each is scored.
  void read_record(std::int64_t record, std::vector<std::int64_t>& ids, std::vector<bool>& scored) const;
  /// Lengths of records [first, first + count), in order.
  void for_each_length(std::int64_t first, std::int64_t count, const std::function<void(std::int64_t)>& take) const;

 private:
  struct Place {
    const Shard* shard;
    std::uint64_t at;
  };
  Place place_of(std::int64_t record) const;
  void give_back(std::size_t shard) const;

  std::shared_ptr<const void> kept_;
  std::vector<Shard> shards_;
  // Only hints for releasing memory: threads may overwrite each other's values.
  mutable std::atomic<std::size_t> last_read_ = static_cast<std::size_t>(-1);
  mutable std::atomic<std::int64_t> reads_ = 0;
  std::vector<std::int64_t> token_begins_ = {0}, record_begins_ = {0};  // start of each shard, followed by the totals
};

}  // namespace tessera::corpus
