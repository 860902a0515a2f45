#include <tessera/launch/watch/wait_graph.h>

#include <tessera/base/text.h>
#include <tessera/launch/fleet/rank_list.h>
#include <tessera/launch/watch/proc_status.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace tessera::launch {
namespace {

bool is_pair(Op op) { return op == Op::send || op == Op::recv; }

/// Collectives that the ranks have begun in one group.
struct GroupView {
  int size = 0;
  std::map<int, std::uint64_t> begun;      ///< rank -> sequence of its newest collective
  std::map<int, const Entry*> unfinished;  ///< rank -> its oldest collective not known to be finished
  std::set<int> members;                   ///< ranks seen in the group; others may belong to it
};

std::map<std::string, GroupView> groups_of(const std::vector<RankView>& ranks) {
  std::map<std::string, GroupView> groups;
  for (const RankView& rank : ranks) {
    for (const Entry& entry : rank.entries) {
      GroupView& group = groups[entry.group];
      group.size = std::max(group.size, entry.group_size);
      group.members.insert(rank.rank);
      if (is_pair(entry.op)) continue;
      auto& newest = group.begun[rank.rank];
      newest = std::max(newest, entry.sequence);
      // A collective for which nobody waited keeps the state "started"; a later collective that has finished shows that
      // it is over.
      if (entry.status == Status::started) {
        group.unfinished.try_emplace(rank.rank, &entry);
      } else {
        group.unfinished.erase(rank.rank);
      }
    }
  }
  return groups;
}

struct Wait {
  const Entry* entry = nullptr;  ///< the entry in which it waits
  std::set<int> whom;
};

/// The global rank of the group member with index `place`, if all members are known.
std::optional<int> member(const GroupView& group, int place) {
  if (place < 0 || static_cast<int>(group.members.size()) != group.size || place >= group.size) return std::nullopt;
  return *std::next(group.members.begin(), place);
}

/// Returns the collective of this group in which a rank waits; nullptr if none.
const Entry* waits_in(const RankView& rank, const std::string& name, const GroupView& group) {
  if (!rank.knows_blocked) {
    const auto pending = group.unfinished.find(rank.rank);
    return pending == group.unfinished.end() ? nullptr : pending->second;
  }
  for (const Entry& entry : rank.entries) {
    const bool here = rank.blocked_in == entry.id && entry.status == Status::started && !is_pair(entry.op);
    if (here && name == entry.group) return &entry;
  }
  return nullptr;
}

/// Returns the unfinished send or receive in which a rank waits; nullptr if none.
const Entry* waits_in_pair(const RankView& rank) {
  for (auto entry = rank.entries.rbegin(); entry != rank.entries.rend(); ++entry) {
    if (rank.knows_blocked ? rank.blocked_in != entry->id : entry != rank.entries.rbegin()) continue;
    return is_pair(entry->op) && entry->status == Status::started ? &*entry : nullptr;
  }
  return nullptr;
}

std::map<int, Wait> waits_of(const std::vector<RankView>& ranks, const std::map<std::string, GroupView>& groups) {
  std::map<int, Wait> waits;
  for (const RankView& rank : ranks) {
    if (rank.gone) continue;
    Wait wait;
    for (const auto& [name, group] : groups) {
      const Entry* const pending = waits_in(rank, name, group);
      if (pending == nullptr) continue;
      if (wait.entry == nullptr) wait.entry = pending;
      const bool all_known = static_cast<int>(group.members.size()) >= group.size;
      for (const RankView& other : ranks) {
        if (other.rank == rank.rank || (all_known && !group.members.contains(other.rank))) continue;
        const auto begun = group.begun.find(other.rank);
        if (begun == group.begun.end() || begun->second < pending->sequence) {
          wait.whom.insert(other.rank);
          wait.entry = pending;
        }
      }
    }
    if (const Entry* const last = waits_in_pair(rank)) {
      if (const auto peer = member(groups.at(last->group), last->peer)) {
        wait.whom.insert(*peer);
        wait.entry = last;
      }
    }
    if (wait.entry != nullptr) waits[rank.rank] = std::move(wait);
  }
  return waits;
}

/// Whether all other members are known and have finished the collective in which this rank waits.
bool all_have_passed(const std::map<std::string, GroupView>& groups, int rank, const Wait& wait) {
  if (is_pair(wait.entry->op) || !wait.whom.empty()) return false;
  const GroupView& group = groups.at(wait.entry->group);
  if (group.size < 2 || static_cast<int>(group.members.size()) != group.size) return false;
  return std::all_of(group.members.begin(), group.members.end(), [&](int other) {
    if (other == rank) return true;
    const auto begun = group.begun.find(other);
    if (begun == group.begun.end() || begun->second < wait.entry->sequence) return false;
    const auto pending = group.unfinished.find(other);
    return pending == group.unfinished.end() || pending->second->sequence > wait.entry->sequence;
  });
}

const RankView& view(const std::vector<RankView>& ranks, int rank) {
  return *std::find_if(ranks.begin(), ranks.end(), [&](const RankView& each) { return each.rank == rank; });
}

std::string name(const RankView& rank) { return rank_name(rank.rank, rank.pid, rank.place); }

std::string plural(const std::vector<int>& ranks, const char* one, const char* several) {
  return concat(ranks.size() == 1 ? "rank " : "ranks ", list_ranks(ranks), " ", ranks.size() == 1 ? one : several);
}

std::vector<int> numbers(const std::set<int>& ranks) { return {ranks.begin(), ranks.end()}; }

/// Detects ranks that began different collectives under the same number: neither can finish.
std::optional<WaitVerdict> find_mismatch(const std::map<std::string, GroupView>& groups) {
  for (const auto& [group_name, group] : groups) {
    std::map<std::uint64_t, std::map<std::uint64_t, std::pair<std::vector<int>, const Entry*>>>
        kinds;  // sequence, print
    for (const auto& [rank, entry] : group.unfinished) {
      auto& [who, example] = kinds[entry->sequence][entry->fingerprint];
      who.push_back(rank);
      example = entry;
    }
    for (const auto& [sequence, prints] : kinds) {
      if (prints.size() < 2) continue;
      const auto few = std::min_element(prints.begin(), prints.end(), [](const auto& a, const auto& b) {
        return a.second.first.size() < b.second.first.size();
      });
      const auto most = std::max_element(prints.begin(), prints.end(), [](const auto& a, const auto& b) {
        return a.second.first.size() < b.second.first.size();
      });
      const auto& others = most == few ? prints.rbegin()->second : most->second;
      return WaitVerdict{few->second.first,
                         concat(plural(few->second.first, "is", "are"), " in ", describe(*few->second.second), ", but ",
                                plural(others.first, "is", "are"), " in ", describe(*others.second),
                                ": the ranks do not call the same collectives in the same order"),
                         true};
    }
  }
  return std::nullopt;
}

/// Returns the ranks of a wait cycle, starting with any of them. Every rank in `waits` that waits for another leads to
/// one.
std::vector<int> find_circle(const std::map<int, Wait>& waits, int from) {
  std::vector<int> path;
  while (std::find(path.begin(), path.end(), from) == path.end()) {
    path.push_back(from);
    const auto next = waits.find(from);
    if (next == waits.end() || next->second.whom.empty()) return {};
    from = *next->second.whom.begin();
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), from));
  return path;
}

WaitVerdict describe_blockers(const std::vector<RankView>& ranks, const std::map<int, Wait>& waits,
                              const std::vector<int>& blockers, std::int64_t now_ns) {
  std::string text;
  bool certain = false;
  for (const int culprit : blockers) {
    const RankView& rank = view(ranks, culprit);
    certain |= rank.gone;
    std::vector<int> waiting;
    const Entry* in = nullptr;
    for (const auto& [other, wait] : waits) {
      if (!wait.whom.contains(culprit)) continue;
      waiting.push_back(other);
      if (in == nullptr) in = wait.entry;
    }
    text += concat(text.empty() ? "" : "; ", name(rank), " has not reached ", describe(*in), ", where ",
                   plural(waiting, "waits", "wait"), " for it; it is ",
                   rank.gone                          ? "gone"
                   : waits.contains(culprit)          ? "inside another one"
                   : rank.state == RankState::running ? "outside of any collective"
                                                      : state_name(rank.state),
                   ", ", describe_place(rank, now_ns),
                   rank.gone ? "" : concat(", process state ", state_text(rank.process_state)));
  }
  return {blockers, text, certain};
}

/// Finds ranks that are stuck in a collective that all of their peers have passed.
std::optional<WaitVerdict> find_stuck(const std::vector<RankView>& ranks,
                                      const std::map<std::string, GroupView>& groups, const std::map<int, Wait>& waits,
                                      std::int64_t now_ns) {
  WaitVerdict verdict;
  for (const auto& [rank, wait] : waits) {
    if (!all_have_passed(groups, rank, wait)) continue;
    verdict.culprits.push_back(rank);
    const RankView& its = view(ranks, rank);
    verdict.text += concat(verdict.text.empty() ? "" : "; ", name(its), " does not leave ", describe(*wait.entry),
                           ", which all of its peers have passed; ", describe_place(its, now_ns), ", process state ",
                           state_text(its.process_state));
  }
  if (verdict.culprits.empty()) return std::nullopt;
  verdict.certain = true;
  return verdict;
}

}  // namespace

RankView view_of(const RankSlot& slot, int rank, pid_t pid) {
  RankView view;
  view.rank = rank;
  view.pid = pid;
  view.state = slot.state.load();
  view.gone = view.state == RankState::left;
  view.place = read_text(slot.place);
  view.phase = read_text(slot.phase);
  view.step = slot.step.load();
  view.entries = last_entries(slot);
  view.knows_blocked = true;
  if (const std::uint64_t blocked = slot.blocked_in.load(); blocked != 0) view.blocked_in = blocked - 1;
  return view;
}

std::string describe_place(const RankView& rank, std::int64_t now_ns) {
  std::string text = rank.step > 0 || !rank.phase.empty() ? concat("step ", rank.step) : std::string();
  if (!rank.phase.empty()) text += concat(", ", rank.phase);
  if (!text.empty()) text += "; ";
  if (rank.entries.empty()) return text + "it has begun no collective";
  const Entry& last = rank.entries.back();
  text += concat("its last collective: ", describe(last));
  const auto ago = [&](std::int64_t time) {
    return concat(format_real(static_cast<double>(now_ns - time) * 1e-9, 3), " s ago");
  };
  switch (last.status) {
    case Status::done:
      return concat(text, ", ended ", ago(last.end_ns));
    case Status::failed:
      return concat(text, ", failed ", ago(last.end_ns));
    case Status::started:
      break;
  }
  return concat(text, ", begun ", ago(last.start_ns), ", not finished");
}

WaitVerdict find_culprit(const std::vector<RankView>& ranks, std::int64_t now_ns) {
  const auto groups = groups_of(ranks);
  if (auto mismatch = find_mismatch(groups)) return *mismatch;
  const auto waits = waits_of(ranks, groups);
  if (auto stuck = find_stuck(ranks, groups, waits, now_ns)) return *stuck;
  std::set<int> waited_for;
  for (const auto& [rank, wait] : waits) waited_for.insert(wait.whom.begin(), wait.whom.end());
  std::vector<int> blockers;
  for (const int rank : waited_for) {
    const auto own = waits.find(rank);
    if (own == waits.end() || own->second.whom.empty()) blockers.push_back(rank);
  }
  if (!blockers.empty()) return describe_blockers(ranks, waits, blockers, now_ns);
  for (const int rank : waited_for) {
    const std::vector<int> circle = find_circle(waits, rank);
    if (circle.empty()) continue;
    std::string text = concat(plural(circle, "waits for itself", "wait for each other"), ":");
    for (std::size_t i = 0; i < circle.size(); ++i) {
      const int next = circle[(i + 1) % circle.size()];
      text += concat(i == 0 ? " " : "; ", name(view(ranks, circle[i])), " is in ", describe(*waits.at(circle[i]).entry),
                     ", which rank ", next, " has not reached");
    }
    std::vector<int> sorted = circle;
    std::sort(sorted.begin(), sorted.end());
    return {sorted, text, true};
  }
  std::vector<int> all, inside;
  for (const RankView& rank : ranks) {
    if (rank.gone) continue;
    all.push_back(rank.rank);
    if (waits.contains(rank.rank)) inside.push_back(rank.rank);
  }
  if (inside.size() == all.size() && !all.empty()) {
    return {all,
            concat("all ranks have reached ", describe(*waits.begin()->second.entry),
                   ", and none leaves it: check their stacks, and the network between them"),
            false};
  }
  std::set<int> outside(all.begin(), all.end());
  for (const int rank : inside) outside.erase(rank);
  std::string text;
  for (const int rank : outside) {
    text += concat(text.empty() ? "" : "; ", name(view(ranks, rank)), " is outside of any collective, ",
                   describe_place(view(ranks, rank), now_ns), ", process state ",
                   state_text(view(ranks, rank).process_state));
  }
  return {numbers(outside), text, false};
}

}  // namespace tessera::launch
