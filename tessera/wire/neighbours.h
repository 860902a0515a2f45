#pragma once
/// \file
/// The watcher's view of other ranks: sightings from slots of the board, or from texts exchanged through a store, and
/// their comparison with this rank.

#include <tessera/launch/agent/board.h>
#include <tessera/wire/mismatch.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::wire {

/// Looks at a slot. Takes the entries from id `cursor` on, except unfinished ones, and moves the
/// cursor.
Sighting look_at(const launch::RankSlot& slot, int rank, std::uint64_t& cursor);

/// A sighting as bytes, for ranks of the same build.
std::string encode(const Sighting& sighting);
/// nullopt if the bytes are not a sighting.
std::optional<Sighting> decode(std::string_view bytes);

/// Compares this rank with its neighbour in each group: the next member, cyclically. Thread-safe.
class Comparer {
 public:
  explicit Comparer(int rank) : rank_(rank) {}

  /// Call before the group's first collective.
  void add_group(std::uint32_t id, const std::vector<int>& members);
  /// The ranks to look at.
  std::vector<int> others() const;
  /// Takes this rank's new entries, then those of the visible ranks; returns the first mismatch.
  std::optional<std::string> compare(const Sighting& mine, const std::vector<Sighting>& theirs);
  /// True if that collective needs no further comparison: the group has two ranks, and both records agree up to it.
  bool settled(const launch::Entry& entry) const;

 private:
  struct Pair {
    PairCheck check;
    std::map<std::uint32_t, std::size_t> sizes;  // group ID -> number of ranks
  };
  const int rank_;
  mutable std::mutex mutex_;
  std::map<int, Pair> pairs_;  // key: the other rank
};

/// The member after `rank`, cyclically.
int neighbour_of(int rank, const std::vector<int>& members);

}  // namespace tessera::wire
