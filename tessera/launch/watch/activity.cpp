#include <tessera/launch/watch/activity.h>

#include <tessera/base/text.h>

#include <unistd.h>

namespace tessera::launch {
namespace {

constexpr double idle_share = 0.05, starved_share = 0.25;  ///< as shares of one processor

}  // namespace

bool is_long_phase(RankState state) {
  return state == RankState::evaluating || state == RankState::saving || state == RankState::working;
}

void CpuMeter::look(const ProcStatus& status, std::int64_t now_ns) {
  if (since_ns_ != 0 && now_ns - since_ns_ < second_ns) return;
  if (since_ns_ != 0) {
    const double used = static_cast<double>(status.cpu_ticks - ticks_) / static_cast<double>(sysconf(_SC_CLK_TCK));
    share_ = used / (static_cast<double>(now_ns - since_ns_) * 1e-9);
    starves_ = status.state == 'R' && share_ < starved_share;
    begin_ns_ = since_ns_;
  }
  ticks_ = status.cpu_ticks;
  since_ns_ = now_ns;
}

bool CpuMeter::burns() const { return share_ >= idle_share; }

Activity activity_of(const RankSlot& slot, RankState state, const std::optional<ProcStatus>& status,
                     const CpuMeter& meter) {
  if (!status) return Activity::ended;
  if (status->traced) return Activity::traced;
  if (slot.blocked_in.load() != 0) return Activity::in_collective;
  if (status->state == 'D') return Activity::at_disk;
  if (meter.burns() || meter.starves()) return Activity::computes;
  return is_long_phase(state) ? Activity::long_phase : Activity::sleeps;
}

std::string describe_activity(Activity activity, const RankSlot& slot, RankState state, const CpuMeter& meter) {
  std::string text;
  switch (activity) {
    case Activity::ended:
      return "has ended";
    case Activity::traced:
      return "is under a debugger";
    case Activity::in_collective:
      text = "waits in a collective";
      break;
    case Activity::computes:
      text = meter.starves() ? concat("is runnable and gets ", format_real(meter.share(), 2), " of a processor")
                             : concat("computes (", format_real(meter.share(), 3), " of a processor)");
      break;
    case Activity::at_disk:
      text = "waits for a disk or a network file system (process state D)";
      break;
    case Activity::long_phase:
    case Activity::sleeps:
      text = "sleeps";
      break;
  }
  if (state != RankState::running && state != RankState::working) text += concat(", ", state_name(state));
  if (const std::int64_t step = slot.step.load(); step > 0) text += concat(", step ", step);
  if (const std::string phase = read_text(slot.phase); !phase.empty()) text += concat(", ", phase);
  return text;
}

}  // namespace tessera::launch
