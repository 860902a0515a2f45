#include <tessera/launch/watch/life.h>

#include <tessera/base/text.h>

#include <unistd.h>

#include <algorithm>
#include <optional>

namespace tessera::launch {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr double idle_limit = 30, busy_limit = 600;  ///< seconds without progress before a step is known
constexpr double evaluation_limit = 60;
constexpr double idle_share = 0.05, starved_share = 0.25;  ///< shares of one processor
constexpr double waiting_share = 0.5;                      ///< how much of a pause waiting for a processor must explain

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

bool has_a_heart(RankState state) {
  return state == RankState::joining || state == RankState::running || state == RankState::evaluating ||
         state == RankState::saving || state == RankState::leaving;
}

std::string name(const WatchedRank& rank, const RankSlot& slot) {
  return rank_name(rank.rank, rank.pid, read_text(slot.place));
}

/// How much longer than heartbeat_timeout a process in this state is waited for.
double patience(char state) { return state == 'R' ? 4 : state == 'D' ? 2 : 1; }

}  // namespace

LifeWatch::LifeWatch(const LifeLimits& limits, ReadStatus read_status)
    : limits_(limits), read_status_(std::move(read_status)) {}

std::vector<LifeFinding> LifeWatch::look(const Board& board, std::uint32_t generation,
                                         const std::vector<WatchedRank>& ranks, std::int64_t now_ns) {
  if (last_look_ns_ == 0 || now_ns - last_look_ns_ > second_ns) excused_ns_ = now_ns;
  last_look_ns_ = now_ns;
  memory_.resize(static_cast<std::size_t>(board.slots()));
  std::vector<LifeFinding> findings;
  std::vector<WatchedRank> watched;
  for (const WatchedRank& rank : ranks) {
    const RankSlot& slot = board.slot(rank.slot);
    if (slot.generation.load() != generation) continue;
    Memory& memory = memory_[static_cast<std::size_t>(rank.slot)];
    if (const RankState state = slot.state.load(); state != memory.state) {
      memory.state = state;
      memory.state_ns = now_ns;
    }
    watched.push_back(rank);
    if (has_a_heart(memory.state)) look_at_heart(slot, rank, memory, now_ns, findings);
  }
  look_at_progress(board, watched, now_ns, findings);
  return findings;
}

void LifeWatch::look_at_heart(const RankSlot& slot, const WatchedRank& rank, Memory& memory, std::int64_t now_ns,
                              std::vector<LifeFinding>& findings) {
  const std::int64_t heartbeat = slot.heartbeat_ns.load();
  if (heartbeat == 0 || heartbeat > now_ns) return;  // none yet, or one after `now` was taken
  if (heartbeat != memory.heartbeat_ns) {
    const double pause = seconds(heartbeat - std::max(memory.heartbeat_ns, excused_ns_));
    const auto status = pause >= limits_.told_pause ? read_status_(rank.pid) : std::nullopt;
    const bool waited = status && merely_waits_for_cpu(memory, *status, now_ns);
    if (memory.heartbeat_ns != 0 && pause >= limits_.told_pause && !waited) {
      // One that was stopped and just continued may run by now, and have given no heartbeat yet.
      const char seen = memory.told_stopped ? 'T' : memory.status_in_pause;
      const std::string state = seen == 0 ? "" : concat(" (process state ", state_text(seen), ")");
      findings.push_back(
          {LifeFinding::paused,
           {rank.rank},
           concat(name(rank, slot), " gave no heartbeat for ", format_real(pause, 3), " s", state, " and goes on"),
           pause});
    }
    memory.heartbeat_ns = heartbeat;
    memory.status_in_pause = 0;
    memory.pause_seen_ns = 0;
    memory.told_stopped = memory.told_frozen = false;
    return;
  }
  const double age = seconds(now_ns - std::max(heartbeat, excused_ns_));
  if (age < std::min(limits_.told_pause, 0.5)) return;
  const auto status = read_status_(rank.pid);
  if (status && status->traced) {
    excused_ns_ = now_ns;
    return;
  }
  const char state = status ? status->state : 'X';
  memory.status_in_pause = state;
  if (memory.pause_seen_ns == 0 && status) {
    memory.pause_seen_ns = now_ns;
    memory.cpu_wait_ns = status->cpu_wait_ns;
  }
  if (status && merely_waits_for_cpu(memory, *status, now_ns)) return;
  if (limits_.heartbeat_timeout <= 0 || memory.told_frozen) return;
  if (state == 'T' && age >= limits_.told_pause && !memory.told_stopped) {
    memory.told_stopped = true;
    findings.push_back({LifeFinding::stopped,
                        {rank.rank},
                        concat(name(rank, slot), " stands still: no heartbeat for ", format_real(age, 3),
                               " s, process state ", state_text(state), "; the job ends after ",
                               format_real(limits_.heartbeat_timeout, 3), " s (--heartbeat_timeout)"),
                        age});
  }
  if (age < limits_.heartbeat_timeout * patience(state) || slot.heartbeat_ns.load() != heartbeat) return;
  memory.told_frozen = true;
  findings.push_back({LifeFinding::frozen,
                      {rank.rank},
                      concat(name(rank, slot), " is frozen: no heartbeat for ", format_real(age, 3),
                             " s, process state ", state_text(state)),
                      age});
}

bool LifeWatch::merely_waits_for_cpu(const Memory& memory, const ProcStatus& status, std::int64_t now_ns) const {
  if (memory.pause_seen_ns == 0 || now_ns <= memory.pause_seen_ns) return false;
  const char state = memory.status_in_pause;
  if (state != 'R' && state != 'S') return false;  // stopped, or at a disk: that is why, however busy the machine is
  const double share = seconds(status.cpu_wait_ns - memory.cpu_wait_ns) / seconds(now_ns - memory.pause_seen_ns);
  return share >= waiting_share;
}

void LifeWatch::look_at_progress(const Board& board, const std::vector<WatchedRank>& ranks, std::int64_t now_ns,
                                 std::vector<LifeFinding>& findings) {
  if (limits_.hang_timeout < 0) return;
  std::int64_t newest = excused_ns_, p99 = 0;
  bool judged = false, evaluating = false, idle = true, starved = false;
  for (const WatchedRank& rank : ranks) {
    const RankSlot& slot = board.slot(rank.slot);
    Memory& memory = memory_[static_cast<std::size_t>(rank.slot)];
    if (memory.state == RankState::joining || memory.state == RankState::saving) return;
    if (memory.state != RankState::running && memory.state != RankState::evaluating) continue;
    judged = true;
    evaluating |= memory.state == RankState::evaluating;
    newest = std::max({newest, slot.progress_ns.load(), memory.state_ns});
    p99 = std::max(p99, slot.p99_step_ns.load());
  }
  if (!judged || newest > now_ns) return;
  const double stalled = seconds(now_ns - newest);
  double limit = limits_.hang_timeout > 0 ? limits_.hang_timeout : std::max(5.0, 5 * seconds(p99));
  if (evaluating) limit = std::max(limit, evaluation_limit);
  if (stalled < std::min(limit, 2.0)) {
    told_hang_ = false;
    return;
  }
  for (const WatchedRank& rank : ranks) {  // only now: reading /proc of every rank ten times a second is not for free
    Memory& memory = memory_[static_cast<std::size_t>(rank.slot)];
    const auto status = read_status_(rank.pid);
    if (!status) continue;
    if (status->traced) {
      excused_ns_ = now_ns;
      return;
    }
    if (now_ns - memory.cpu_since_ns >= second_ns) {
      const double used =
          static_cast<double>(status->cpu_ticks - memory.cpu_ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
      const double share = used / seconds(now_ns - memory.cpu_since_ns);
      memory.idle = share < idle_share;
      memory.starved = status->state == 'R' && share < starved_share;
      memory.cpu_ticks = status->cpu_ticks;
      memory.cpu_since_ns = now_ns;
    }
    idle &= memory.idle;
    starved |= memory.starved;
  }
  if (p99 == 0 && limits_.hang_timeout == 0) limit = std::max(limit, idle ? idle_limit : busy_limit);
  if (starved && limits_.hang_timeout == 0) limit *= patience('R');
  if (stalled < limit || told_hang_) return;
  told_hang_ = true;
  findings.push_back({LifeFinding::hang,
                      {},
                      concat("no progress for ", format_real(stalled, 3), " s (limit ", format_real(limit, 3), " s",
                             p99 > 0 && limits_.hang_timeout == 0
                                 ? concat(": the larger of 5 s and 5 x p99 step, ", format_real(seconds(p99), 3), " s")
                                 : "",
                             ") although all hearts beat"),
                      stalled});
}

}  // namespace tessera::launch
