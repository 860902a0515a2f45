#include <tessera/launch/watch/liveness.h>

#include <tessera/base/text.h>

#include <algorithm>
#include <optional>

namespace tessera::launch {
namespace {

constexpr std::int64_t process_look_ns = second_ns * 2 / 5;  ///< interval between checks of a process without a
                                                             ///< heartbeat
constexpr double waiting_share = 0.5;  ///< share of a pause that must be due to waiting for a processor

bool has_a_heart(RankState state) {
  return state == RankState::joining || state == RankState::running || state == RankState::leaving ||
         is_long_phase(state);
}

std::string name(const WatchedRank& rank, const RankSlot& slot) {
  return rank_name(rank.rank, rank.pid, read_text(slot.place));
}

/// Multiple of heartbeat_timeout that a process in this state may be silent before it is reported.
double patience(char state) { return state == 'R' ? 4 : state == 'D' ? 2 : 1; }

}  // namespace

LivenessWatch::LivenessWatch(const LivenessLimits& limits, ReadStatus read_status, WhatItWaitsFor what_it_waits_for)
    : limits_(limits), read_status_(std::move(read_status)), progress_(limits, read_status_, what_it_waits_for) {}

std::vector<LivenessFinding> LivenessWatch::look(const Board& board, std::uint32_t generation,
                                                 const std::vector<WatchedRank>& ranks, std::int64_t now_ns) {
  if (last_look_ns_ == 0 || now_ns - last_look_ns_ > second_ns) excused_ns_ = now_ns;
  last_look_ns_ = now_ns;
  memory_.resize(static_cast<std::size_t>(board.slots()));
  std::vector<LivenessFinding> findings;
  std::vector<ProgressWatch::Rank> here;
  for (const WatchedRank& rank : ranks) {
    const RankSlot& slot = board.slot(rank.slot);
    Memory& memory = memory_[static_cast<std::size_t>(rank.slot)];
    const bool came = slot.generation.load() == generation && slot.heartbeat_ns.load() != 0;
    if (const RankState state = came ? slot.state.load() : RankState::none; state != memory.state) {
      memory.state = state;
      memory.state_ns = now_ns;
    }
    if (came) here.push_back({rank, &slot, memory.state, memory.state_ns});
    if (rank.ended) continue;
    if (has_a_heart(memory.state))
      look_at_heart(slot, rank, memory, now_ns, findings);
    else if (memory.state != RankState::failed)
      look_at_process(slot, rank, memory, now_ns, findings);
  }
  if (!progress_.look(here, excused_ns_, now_ns, findings)) excused_ns_ = now_ns;
  return findings;
}

void LivenessWatch::look_at_heart(const RankSlot& slot, const WatchedRank& rank, Memory& memory, std::int64_t now_ns,
                                  std::vector<LivenessFinding>& findings) {
  const std::int64_t heartbeat = slot.heartbeat_ns.load();
  if (heartbeat > now_ns) return;  // written after `now_ns` was taken
  if (heartbeat != memory.heartbeat_ns) {
    const double pause = in_seconds(heartbeat - std::max(memory.heartbeat_ns, excused_ns_));
    const auto status = pause >= limits_.told_pause ? read_status_(rank.pid) : std::nullopt;
    const bool waited = status && merely_waits_for_cpu(memory, *status, now_ns);
    if (memory.heartbeat_ns != 0 && pause >= limits_.told_pause && !waited) {
      // A rank that was stopped and has just continued may already run but not have sent a heartbeat yet.
      const char seen = memory.told_stopped ? 'T' : memory.status_in_pause;
      const std::string state = seen == 0 ? "" : concat(" (process state ", state_text(seen), ")");
      findings.push_back(
          {LivenessFinding::paused,
           {rank.rank},
           concat(name(rank, slot), " gave no heartbeat for ", format_real(pause, 3), " s", state, " and continues"),
           pause});
    }
    memory.heartbeat_ns = heartbeat;
    memory.status_in_pause = 0;
    memory.pause_seen_ns = memory.stopped_ns = 0;
    memory.told_stopped = memory.told_silent = memory.told_frozen = false;
    return;
  }
  const double age = in_seconds(now_ns - std::max(heartbeat, excused_ns_));
  if (age < std::min(limits_.told_pause, 0.5)) return;
  const auto status = read_status_(rank.pid);
  if (!status) return;  // it has exited, which is detected elsewhere
  if (status->traced) {
    excused_ns_ = now_ns;
    return;
  }
  memory.status_in_pause = status->state;
  if (memory.pause_seen_ns == 0) {
    memory.pause_seen_ns = now_ns;
    memory.cpu_wait_ns = status->cpu_wait_ns;
  }
  if (merely_waits_for_cpu(memory, *status, now_ns) || slot.heartbeat_ns.load() != heartbeat) return;
  judge_silence(name(rank, slot), status->state, age, concat("no heartbeat for ", format_real(age, 3), " s"), rank,
                memory, findings);
}

/// A process without a heartbeat: it has not reached tessera::init(), or has left.
void LivenessWatch::look_at_process(const RankSlot& slot, const WatchedRank& rank, Memory& memory, std::int64_t now_ns,
                                    std::vector<LivenessFinding>& findings) {
  if (limits_.heartbeat_timeout <= 0 || now_ns - memory.looked_ns < process_look_ns) return;
  memory.looked_ns = now_ns;
  const auto status = read_status_(rank.pid);
  if (!status || status->traced || status->state != 'T') {
    memory.stopped_ns = 0;
    memory.told_stopped = memory.told_frozen = false;
    return;
  }
  if (memory.stopped_ns == 0) memory.stopped_ns = now_ns;
  const double age = in_seconds(now_ns - std::max(memory.stopped_ns, excused_ns_));
  const bool left = memory.state == RankState::left;
  judge_silence(left ? name(rank, slot) : rank_name(rank.rank, rank.pid, ""), 'T', age,
                concat("stopped for ", format_real(age, 3), " s ",
                       left ? "after it left the job" : "before it reached tessera::init()"),
                rank, memory, findings);
}

/// Judges a silent process. Only a stopped one is terminated within seconds.
void LivenessWatch::judge_silence(const std::string& name, char state, double age, const std::string& how_long,
                                  const WatchedRank& rank, Memory& memory,
                                  std::vector<LivenessFinding>& findings) const {
  if (limits_.heartbeat_timeout <= 0 || memory.told_frozen) return;
  const auto add = [&](LivenessFinding::Kind kind, const std::string& text) {
    findings.push_back({kind, {rank.rank}, text, age});
  };
  const std::string what = concat(how_long, ", process state ", state_text(state));
  const bool stopped = state == 'T';
  if (stopped && age >= limits_.told_pause && !memory.told_stopped) {
    memory.told_stopped = true;
    add(LivenessFinding::stopped, concat(name, " is stopped: ", what, "; the job ends after ",
                                         format_real(limits_.heartbeat_timeout, 3), " s (--heartbeat_timeout)"));
  }
  if (!stopped && age >= limits_.heartbeat_timeout * patience(state) && !memory.told_silent) {
    memory.told_silent = true;
    add(LivenessFinding::report,
        concat(name, " shows no sign of life: ", what, "; it is terminated only if it is stopped",
               state == 'S' && limits_.hang_timeout >= 0
                   ? concat(", or silent for ", format_real(limits_.sleep_limit(), 3), " s (--hang_timeout)")
                   : ""));
  }
  const bool ends = stopped        ? age >= limits_.heartbeat_timeout
                    : state == 'S' ? limits_.hang_timeout >= 0 && age >= limits_.sleep_limit()
                                   : false;
  if (!ends) return;
  memory.told_frozen = true;
  add(LivenessFinding::frozen, concat(name, " is frozen: ", what));
}

bool LivenessWatch::merely_waits_for_cpu(const Memory& memory, const ProcStatus& status, std::int64_t now_ns) const {
  if (memory.pause_seen_ns == 0 || now_ns <= memory.pause_seen_ns) return false;
  const char state = memory.status_in_pause;
  if (state != 'R' && state != 'S')
    return false;  // stopped, or waiting for a disk: that explains the pause, however
                   // busy the machine is
  const double share = in_seconds(status.cpu_wait_ns - memory.cpu_wait_ns) / in_seconds(now_ns - memory.pause_seen_ns);
  return share >= waiting_share;
}

}  // namespace tessera::launch
