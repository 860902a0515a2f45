#include <tessera/launch/watch/progress.h>

#include <tessera/base/text.h>
#include <tessera/launch/fleet/rank_list.h>

#include <algorithm>

namespace tessera::launch {
namespace {

constexpr double least_limit = 5, first_step_limit = 30, long_phase_limit = 60;  ///< seconds without progress
constexpr double steps_of_limit = 5, starved_factor = 4;
constexpr std::size_t told_ranks = 4;

bool is_judged(RankState state) { return state == RankState::running || is_long_phase(state); }

}  // namespace

ProgressWatch::ProgressWatch(const LivenessLimits& limits, ReadStatus read_status, WhatItWaitsFor what_it_waits_for)
    : limits_(limits), read_status_(std::move(read_status)), what_it_waits_for_(std::move(what_it_waits_for)) {}

double ProgressWatch::soon(const Stall& stall) const {
  const double own =
      stall.p99_ns > 0 ? std::max(least_limit, steps_of_limit * in_seconds(stall.p99_ns)) : first_step_limit;
  const double limit = stall.starves ? own * starved_factor : own;
  return limits_.hang_timeout > 0 ? std::min(limits_.hang_timeout, limit) : limit;
}

std::string ProgressWatch::soon_text(const Stall& stall) const {
  const double limit = soon(stall);
  std::string text = concat("limit ", format_real(limit, 3), " s");
  if (limit == limits_.hang_timeout) return concat(text, ": --hang_timeout");
  if (stall.p99_ns > 0)
    text += concat(": the larger of 5 s and 5 x p99 step, ", format_real(in_seconds(stall.p99_ns), 3), " s");
  if (stall.starves) text += ", four times as long because a rank gets no processor";
  return text;
}

double ProgressWatch::report_after(const Stall& stall) const {
  const double limit = soon(stall);
  return stall.long_phase ? std::max(limit, long_phase_limit) : limit;
}

bool ProgressWatch::look(const std::vector<Rank>& ranks, std::int64_t excused_ns, std::int64_t now_ns,
                         std::vector<LivenessFinding>& findings) {
  if (limits_.hang_timeout < 0) return true;
  Stall stall;
  stall.newest_ns = excused_ns;
  bool judged = false;
  for (const Rank& rank : ranks) {
    if (rank.who.ended) continue;
    if (rank.state == RankState::joining) return true;
    if (!is_judged(rank.state)) continue;
    judged = true;
    stall.long_phase |= is_long_phase(rank.state);
    stall.newest_ns = std::max({stall.newest_ns, rank.slot->progress_ns.load(), rank.state_ns});
    stall.p99_ns = std::max(stall.p99_ns, rank.slot->p99_step_ns.load());
  }
  if (!judged || stall.newest_ns > now_ns) return true;
  stall.seconds = in_seconds(now_ns - stall.newest_ns);
  // Reading /proc of every rank is not free: it is done once a second, and only while nothing progresses.
  const double begin = std::min(1.0, soon(stall) / 2);
  if (stall.seconds < begin) {
    told_hang_ = false;
    report_at_ = 0;
    memory_.clear();
    looked_ns_ = 0;
    return true;
  }
  if (told_hang_ || (looked_ns_ != 0 && in_seconds(now_ns - looked_ns_) < begin)) return true;
  looked_ns_ = now_ns;
  bool all_known = true;
  for (const Rank& rank : ranks) {
    if (rank.who.ended || !is_judged(rank.state)) continue;
    Memory& memory = memory_[rank.who.rank];
    const auto status = read_status_(rank.who.pid);
    if (status) memory.meter.look(*status, now_ns);
    memory.process_state = status ? status->state : 'X';
    memory.activity = activity_of(*rank.slot, rank.state, status, memory.meter);
    if (memory.activity == Activity::traced) return false;
    stall.starves |= memory.meter.starves();
    all_known &= !status || memory.meter.knows();
    // In a collective, processor time may be spent polling for the others. A stopped rank does not count as asleep: its
    // missing heartbeat is judged elsewhere (liveness.h).
    const bool asleep =
        memory.meter.knows() && memory.process_state != 'T' &&
        (memory.activity == Activity::sleeps || (memory.activity == Activity::in_collective && !memory.meter.burns()));
    if (!asleep)
      memory.asleep_ns = 0;
    else if (memory.asleep_ns == 0)
      memory.asleep_ns = memory.meter.window_begin_ns();
  }
  const auto tell_hang = [&](std::vector<int> who, const std::string& limit) {
    told_hang_ = true;
    findings.push_back(
        {LivenessFinding::hang, std::move(who),
         concat("no progress for ", format_real(stall.seconds, 3), " s (", limit, ") although all heartbeats continue"),
         stall.seconds});
  };
  if (stall.seconds >= soon(stall)) {
    const WaitVerdict verdict = find_culprit(views(ranks), now_ns);
    if (verdict.certain) {
      tell_hang(verdict.culprits, soon_text(stall));
      return true;
    }
  }
  if (const auto who = sleepers(ranks, now_ns); !who.empty()) {
    tell_hang(who, concat("limit ", format_real(limits_.sleep_limit(), 3), " s: --hang_timeout"));
    return true;
  }
  if (all_known && stall.seconds >= (report_at_ > 0 ? report_at_ : report_after(stall))) {
    report_at_ = 2 * stall.seconds;
    findings.push_back({LivenessFinding::report, {}, report(ranks, stall, now_ns), stall.seconds});
  }
  return true;
}

std::vector<RankView> ProgressWatch::views(const std::vector<Rank>& ranks) {
  std::vector<RankView> result;
  for (const Rank& rank : ranks) {
    result.push_back(view_of(*rank.slot, rank.who.rank, rank.who.pid));
    result.back().gone |= rank.who.ended;
    if (const auto memory = memory_.find(rank.who.rank); memory != memory_.end())
      result.back().process_state = memory->second.process_state;
  }
  return result;
}

std::vector<int> ProgressWatch::sleepers(const std::vector<Rank>& ranks, std::int64_t now_ns) {
  std::vector<int> outside, inside;
  bool all_inside = true;
  for (const Rank& rank : ranks) {
    const auto memory = memory_.find(rank.who.rank);
    if (rank.who.ended || memory == memory_.end()) continue;
    const bool in_collective = memory->second.activity == Activity::in_collective;
    const bool long_asleep =
        memory->second.asleep_ns != 0 && in_seconds(now_ns - memory->second.asleep_ns) >= limits_.sleep_limit();
    all_inside &= in_collective && long_asleep;
    if (long_asleep) (in_collective ? inside : outside).push_back(rank.who.rank);
  }
  return !outside.empty() ? outside : all_inside ? inside : std::vector<int>{};
}

std::string ProgressWatch::report(const std::vector<Rank>& ranks, const Stall& stall, std::int64_t now_ns) {
  std::vector<const Rank*> told;
  std::vector<int> waiting;
  std::vector<pid_t> own;
  bool may_end = false;
  for (const Rank& rank : ranks) {
    const auto memory = memory_.find(rank.who.rank);
    if (rank.who.ended || memory == memory_.end()) continue;
    own.push_back(rank.who.pid);
    may_end |= memory->second.asleep_ns != 0 && memory->second.activity == Activity::sleeps;
    if (memory->second.activity == Activity::in_collective)
      waiting.push_back(rank.who.rank);
    else
      told.push_back(&rank);
  }
  std::string text = concat("no progress for ", format_real(stall.seconds, 3), " s: ");
  for (std::size_t i = 0; i < std::min(told.size(), told_ranks); ++i) {
    const Rank& rank = *told[i];
    const Memory& memory = memory_.at(rank.who.rank);
    text += concat(i > 0 ? "; " : "", rank_name(rank.who.rank, rank.who.pid, read_text(rank.slot->place)), " ",
                   describe_activity(memory.activity, *rank.slot, rank.state, memory.meter));
    const bool waits = memory.activity == Activity::sleeps || memory.activity == Activity::long_phase;
    if (const std::string whom = waits ? what_it_waits_for_(rank.who.pid, own) : ""; !whom.empty())
      text += concat(" (", whom, ")");
  }
  if (told.size() > told_ranks) text += concat("; and ", told.size() - told_ranks, " more ranks");
  if (told.empty())
    text += find_culprit(views(ranks), now_ns).text;
  else if (!waiting.empty())
    text += concat("; ", ranks_text(waiting), waiting.size() == 1 ? " waits" : " wait", " in a collective");
  const std::string limit = concat(format_real(limits_.sleep_limit(), 3), " s of sleep (--hang_timeout)");
  text += may_end        ? concat("; the job ends after ", limit)
          : told.empty() ? concat("; the job ends after ", limit, " on all ranks")
                         : "; no rank is terminated for this";
  return concat(text, "; reported again after ", format_real(report_at_, 3), " s");
}

}  // namespace tessera::launch
