#pragma once
/// \file
/// Decides whether two ranks started the same collectives: the comparison without transport, threads or tensors. Each
/// rank compares itself with one neighbour per group, so the cost per rank does not grow with the job.

#include <tessera/launch/agent/board.h>
#include <tessera/launch/watch/record.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::wire {

/// Remedy if a rank leaves before the others: it usually had fewer batches.
inline constexpr const char* fewer_batches_hint =
    "If it had fewer batches: a rank without data must repeat its last batch with the loss times zero.";

/// A snapshot of a rank's state. Read state and blocked_in before the entries, so that the entries are at least as
/// recent.
struct Sighting {
  int rank = 0;  ///< in the world
  launch::RankState state = launch::RankState::none;
  std::uint64_t pulse = 0;                  ///< changes between two sightings if the rank was alive in between
  std::optional<launch::Entry> blocked_in;  ///< set if every thread that starts collectives waits for one
  std::int64_t blocked_ns = 0;              ///< duration of that wait
  std::vector<launch::Entry> entries;       ///< started since the last sighting; older ones do no harm
};

/// Compares this rank with another rank, over all groups that contain both.
class PairCheck {
 public:
  PairCheck(int rank, int other);

  /// `members`: global ranks in the group's order, including both ranks.
  void add_group(std::uint32_t id, std::vector<int> members);

  /// Processes both sightings and returns the first mismatch, if any:
  /// - the same sequence number of a group is a different collective (op, dtype, size, root, reduction, tag);
  /// - each waits in an operation that the other cannot join, because it waits, too (groups in a different order, a
  /// missing
  ///   call, a recv without a send): seen twice, to exclude a transient state;
  /// - one waits in a collective, the other has left the job without it.
  std::optional<std::string> update(const Sighting& mine, const Sighting& theirs);

  /// True if both are known to have started collective number `sequence` of the group, and all collectives up to it
  /// agree.
  bool equal_through(std::uint32_t group_id, std::uint64_t sequence) const;

 private:
  /// The known state of one rank in one group.
  struct Side {
    std::deque<launch::Entry> window;      // collectives not compared yet, ascending by sequence
    std::uint64_t next = 0;                // number of the first collective not started
    std::uint64_t next_message = 0;        // number of the first message not started
    std::uint64_t sent = 0, received = 0;  // number of started messages to and from the other rank
    bool counts_messages = true;           // false once some messages were missed
    /// The newest messages: message number -> how many of its kind had been started up to it. The message that a rank
    /// waits for need not be its newest: pipelines post receives ahead.
    std::map<std::uint64_t, std::uint64_t> counts;
  };
  struct Common {
    std::vector<int> members;  // empty: not added
    Side mine, theirs;
    std::uint64_t equal = 0;  // number of collectives known to agree
  };
  /// Identifies a pair of simultaneous waits.
  struct Waits {
    std::uint64_t mine = 0, theirs = 0, pulse = 0;
  };

  void take(const std::vector<launch::Entry>& entries, bool mine);
  std::optional<std::string> compare(Common& group) const;
  std::optional<std::string> deadlock(const Sighting& mine, const Sighting& theirs);
  bool needs_the_other(const launch::Entry& entry, bool mine) const;

  int rank_, other_;
  std::map<std::uint32_t, Common> groups_;
  std::optional<Waits> seen_;
};

/// "the ranks started different collectives (not the same dtype): rank 0 is in broadcast #12 of group 'world' (4 ranks,
/// 1000 x float32, root 0, tag 'bucket 3'), rank 1 in ...".
std::string mismatch_text(int rank_a, const launch::Entry& a, int rank_b, const launch::Entry& b);

}  // namespace tessera::wire
