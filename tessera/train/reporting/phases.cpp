#include <tessera/train/reporting/phases.h>

#include <algorithm>
#include <utility>

#include <tessera/base/clock.h>
#include <tessera/comm/recorder.h>

namespace tessera::train {
void PhaseClock::enter(Phase phase) { enter(phase, monotonic_ns(), comm::recorder().seconds_waited()); }

void PhaseClock::enter(Phase phase, std::int64_t now_ns, double blocked_seconds) {
  if (running_) {
    const double passed = static_cast<double>(now_ns - since_ns_) * 1e-9;
    // Several threads can be blocked at once, so the sum of their times may exceed the elapsed time.
    const double blocked = std::clamp(blocked_seconds - blocked_seconds_, 0.0, passed);
    at(seconds_, Phase::communication) += blocked;
    at(seconds_, phase_) += passed - blocked;
  }
  running_ = true;
  phase_ = phase;
  since_ns_ = now_ns;
  blocked_seconds_ = blocked_seconds;
}

PhaseSeconds PhaseClock::take() { return std::exchange(seconds_, PhaseSeconds{}); }

}  // namespace tessera::train
