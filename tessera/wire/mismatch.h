#pragma once
/// \file
/// Whether two ranks started the same collectives: the comparison, without transport, threads or tensors. Each rank
/// compares itself with one neighbour per group, so the cost per rank does not grow with the job.

#include <tessera/launch/agent/board.h>
#include <tessera/launch/watch/record.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::wire {

/// What to do where a rank leaves while others go on: usually it had fewer batches.
inline constexpr const char* fewer_batches_hint =
    "If it had fewer batches: a rank without data goes on with its last batch and a loss times zero.";

/// What a rank shows of itself at a moment. Whoever makes one reads state and blocked_in before the entries, so that
/// the entries are at least as new.
struct Sighting {
  int rank = 0;  ///< in the world
  launch::RankState state = launch::RankState::none;
  std::uint64_t pulse = 0;                  ///< differs between two sightings only if the rank lived in between
  std::optional<launch::Entry> blocked_in;  ///< set when every thread that starts collectives waits for one
  std::int64_t blocked_ns = 0;              ///< for how long
  std::vector<launch::Entry> entries;       ///< the new ones since the last sighting (older ones again do no harm)
};

/// Compares this rank with another, over all groups that both are in.
class PairCheck {
 public:
  PairCheck(int rank, int other);

  /// `members`: of a group that has both ranks in it, in rank order (global ranks).
  void add_group(std::uint32_t id, std::vector<int> members);

  /// Takes both sightings and returns what does not match, if anything:
  /// - the same number of a group's collectives is another collective (op, dtype, size, root, reduction, tag);
  /// - each waits in something that the other cannot join, because it waits, too (groups in another order, a missing
  ///   call, a recv that nobody sends): seen twice, so that it is no passing state;
  /// - one waits in a collective, the other has left the job without it.
  std::optional<std::string> update(const Sighting& mine, const Sighting& theirs);

  /// True when both are known to have started collective number `sequence` of the group, and all up to it agree.
  bool equal_through(std::uint32_t group_id, std::uint64_t sequence) const;

 private:
  /// What is known of one rank in one group.
  struct Side {
    std::deque<launch::Entry> window;      // collectives that are not compared yet, ascending by sequence
    std::uint64_t next = 0;                // number of the first collective that was not started
    std::uint64_t next_message = 0;        // likewise of messages
    std::uint64_t sent = 0, received = 0;  // messages to and from the other rank that were started
    bool counts_messages = true;           // false once some were missed
    /// The last of them: number of the message -> how many of its kind there were with it. What a rank waits for need
    /// not be the last that it started: pipelines post receives ahead.
    std::map<std::uint64_t, std::uint64_t> counts;
  };
  struct Common {
    std::vector<int> members;  // empty: not added
    Side mine, theirs;
    std::uint64_t equal = 0;  // so many collectives agree
  };
  /// Both ranks waiting: whether this is still the same wait.
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
