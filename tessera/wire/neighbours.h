#pragma once
/// \file
/// What the watcher sees of other ranks: sightings from slots of the board, or from texts that travel through a store,
/// and their comparison with this rank's.

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

/// Looks at a slot. Takes the entries from id `cursor` on (those that are just being written wait for the next time)
/// and moves the cursor.
Sighting look_at(const launch::RankSlot& slot, int rank, std::uint64_t& cursor);

/// A sighting as bytes, for ranks of the same build.
std::string encode(const Sighting& sighting);
/// nullopt when the bytes are no sighting.
std::optional<Sighting> decode(std::string_view bytes);

/// This rank against its neighbour of each group: the next member, round about. Thread-safe.
class Comparer {
 public:
  explicit Comparer(int rank) : rank_(rank) {}

  /// Before the first collective of the group.
  void add_group(std::uint32_t id, const std::vector<int>& members);
  /// The ranks to look at.
  std::vector<int> others() const;
  /// Takes this rank's new entries, then those of the ranks that could be seen; returns what does not match.
  std::optional<std::string> compare(const Sighting& mine, const std::vector<Sighting>& theirs);
  /// True when there is no more to be learnt of that collective: the group has two ranks, and both records agree up to
  /// it.
  bool settled(const launch::Entry& entry) const;

 private:
  struct Pair {
    PairCheck check;
    std::map<std::uint32_t, std::size_t> sizes;  // group to number of ranks
  };
  const int rank_;
  mutable std::mutex mutex_;
  std::map<int, Pair> pairs_;  // by the other rank
};

/// The member after `rank`, round about.
int neighbour_of(int rank, const std::vector<int>& members);

}  // namespace tessera::wire
