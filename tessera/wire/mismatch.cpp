#include <tessera/wire/mismatch.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace tessera::wire {

using launch::Entry;
using launch::Op;
using launch::RankState;

namespace {

constexpr std::size_t window_size = 1024;
constexpr std::size_t unknown_window_size = 64;        // for groups known only to the other rank
constexpr std::int64_t blocked_long_ns = 200'000'000;  // shorter waits are inconclusive

bool is_message(const Entry& entry) { return entry.op == Op::send || entry.op == Op::recv; }

std::string difference_text(const Entry& a, const Entry& b) {
  std::string text;
  const auto add = [&](const char* what) { text += concat(text.empty() ? "" : ", ", what); };
  if (a.op != b.op) add("operation");
  if (std::string_view(a.dtype) != b.dtype) add("dtype");
  if (a.numel != b.numel) add("number of elements");
  if (a.peer != b.peer) add("root");
  if (std::string_view(a.reduction) != b.reduction) add("reduction");
  if (std::string_view(a.group) != b.group) add("name of the group");
  if (std::string_view(a.tag) != b.tag) add("tag");
  return text.empty() ? "tag" : text;  // the recorded parts are equal
}

constexpr const char* rule = "Every rank of a group must start the same collectives in the same order.";

std::string waiting_text(int rank, const Entry& entry) {
  return concat("rank ", rank, " waits in ", launch::describe(entry));
}

}  // namespace

std::string mismatch_text(int rank_a, const Entry& a, int rank_b, const Entry& b) {
  if (rank_b < rank_a) return mismatch_text(rank_b, b, rank_a, a);
  return concat("the ranks started different collectives (not the same ", difference_text(a, b), "): rank ", rank_a,
                " is in ", launch::describe(a), ", rank ", rank_b, " in ", launch::describe(b), ". ", rule);
}

PairCheck::PairCheck(int rank, int other) : rank_(rank), other_(other) {}

void PairCheck::add_group(std::uint32_t id, std::vector<int> members) { groups_[id].members = std::move(members); }

void PairCheck::take(const std::vector<Entry>& entries, bool mine) {
  for (const Entry& entry : entries) {
    if (entry.group_id == 0) continue;
    // The other rank may be ahead, in a group that this rank has not created yet, so keep the entry.
    Common& group = groups_[entry.group_id];
    Side& side = mine ? group.mine : group.theirs;
    if (!is_message(entry)) {
      if (entry.sequence < side.next) continue;  // seen before
      side.next = entry.sequence + 1;
      side.window.push_back(entry);
      if (side.window.size() > (group.members.empty() ? unknown_window_size : window_size)) side.window.pop_front();
      continue;
    }
    if (entry.sequence < side.next_message) continue;
    if (entry.sequence != side.next_message || group.members.empty()) side.counts_messages = false;
    side.next_message = entry.sequence + 1;
    const bool to_the_other = entry.peer >= 0 && entry.peer < static_cast<int>(group.members.size()) &&
                              group.members[static_cast<std::size_t>(entry.peer)] == (mine ? other_ : rank_);
    if (!to_the_other) continue;
    side.counts[entry.sequence] = ++(entry.op == Op::send ? side.sent : side.received);
    if (side.counts.size() > window_size) side.counts.erase(side.counts.begin());
  }
}

std::optional<std::string> PairCheck::compare(Common& group) const {
  auto& mine = group.mine.window;
  auto& theirs = group.theirs.window;
  while (!mine.empty() && !theirs.empty()) {
    const Entry &a = mine.front(), &b = theirs.front();
    if (a.sequence == b.sequence) {
      if (a.fingerprint != b.fingerprint) return mismatch_text(rank_, a, other_, b);
      if (a.chain != b.chain) {
        return concat("ranks ", std::min(rank_, other_), " and ", std::max(rank_, other_),
                      " started different collectives before ", launch::describe(a),
                      ", too long ago for the record to show which. ", rule);
      }
      group.equal = a.sequence + 1;
    }
    // Entries that only one side still has are covered by the next entry's chain hash.
    const std::uint64_t done = std::min(a.sequence, b.sequence);
    if (a.sequence == done && b.sequence == done) {
      mine.pop_front();
      theirs.pop_front();
    } else if (a.sequence == done) {
      mine.pop_front();
    } else {
      theirs.pop_front();
    }
  }
  return std::nullopt;
}

// Whether a rank's wait (mine: this rank's) can end only after the other rank starts an operation.
bool PairCheck::needs_the_other(const Entry& entry, bool mine) const {
  const auto found = groups_.find(entry.group_id);
  if (found == groups_.end() || found->second.members.empty()) return false;
  const Common& group = found->second;
  const Side& waiting = mine ? group.mine : group.theirs;
  const Side& other = mine ? group.theirs : group.mine;
  if (!is_message(entry)) return other.next <= entry.sequence;
  const int wanted = mine ? other_ : rank_;
  if (entry.peer < 0 || entry.peer >= static_cast<int>(group.members.size()) ||
      group.members[static_cast<std::size_t>(entry.peer)] != wanted) {
    return false;
  }
  if (!waiting.counts_messages || !other.counts_messages) return false;
  const auto counted = waiting.counts.find(entry.sequence);
  if (counted == waiting.counts.end()) return false;  // too old: unknown
  return (entry.op == Op::recv ? other.sent : other.received) < counted->second;
}

std::optional<std::string> PairCheck::deadlock(const Sighting& mine, const Sighting& theirs) {
  const auto waits = [](const Sighting& s) { return s.blocked_in && s.blocked_ns >= blocked_long_ns; };
  const auto is_gone = [](const Sighting& s) { return s.state == RankState::leaving || s.state == RankState::left; };
  const auto left = [&](const Sighting& waiting, const Sighting& gone) {
    return concat(waiting_text(waiting.rank, *waiting.blocked_in), ", but rank ", gone.rank,
                  " has left the job without it (shutdown() was called there). ", rule, " ", fewer_batches_hint);
  };
  if (waits(mine) && is_gone(theirs) && needs_the_other(*mine.blocked_in, true)) return left(mine, theirs);
  if (waits(theirs) && is_gone(mine) && needs_the_other(*theirs.blocked_in, false)) return left(theirs, mine);

  const bool stuck = waits(mine) && waits(theirs) && needs_the_other(*mine.blocked_in, true) &&
                     needs_the_other(*theirs.blocked_in, false);
  if (!stuck) {
    seen_.reset();
    return std::nullopt;
  }
  const Waits now{mine.blocked_in->id, theirs.blocked_in->id, theirs.pulse};
  // A sighting of another process is slightly outdated, so a second, unchanged one must show that both waited at the
  // same time.
  const bool again = seen_ && seen_->mine == now.mine && seen_->theirs == now.theirs;
  if (!again) seen_ = now;
  if (!again || seen_->pulse == now.pulse) return std::nullopt;
  const Sighting& first = mine.rank < theirs.rank ? mine : theirs;
  const Sighting& second = mine.rank < theirs.rank ? theirs : mine;
  return concat("the ranks wait for each other: ", waiting_text(first.rank, *first.blocked_in), ", ",
                waiting_text(second.rank, *second.blocked_in), ". ", rule);
}

std::optional<std::string> PairCheck::update(const Sighting& mine, const Sighting& theirs) {
  take(mine.entries, true);
  take(theirs.entries, false);
  for (auto& [id, group] : groups_) {
    if (group.members.empty()) continue;
    if (auto found = compare(group)) return found;
  }
  return deadlock(mine, theirs);
}

bool PairCheck::equal_through(std::uint32_t group_id, std::uint64_t sequence) const {
  const auto found = groups_.find(group_id);
  return found != groups_.end() && found->second.equal > sequence;
}

}  // namespace tessera::wire
