#pragma once
/// \file
/// Reports the current activity of a process to its consumers: the times by phase, the watchdog (comm/heartbeat.h) and,
/// with --profile, the timeline.

#include <tessera/comm/group.h>
#include <tessera/train/reporting/phases.h>
#include <tessera/train/reporting/trace.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::train {

class RunClock {
 public:
  /// Books the time from this call on to `phase`; `name` is shown to users.
  void enter(Phase phase, std::string_view name);
  void enter(Phase phase) { enter(phase, phase_names[static_cast<std::size_t>(phase)]); }
  const PhaseSeconds& booked() const { return phases_.booked(); }
  PhaseSeconds take() { return phases_.take(); }

  /// Starts recording a timeline. Collective.
  void start_trace(const comm::Group& group, bool one_host);
  /// Adds the collectives since the last call to the timeline, if one is recorded.
  void collect();
  /// Returns the timeline of all ranks on rank 0; nullopt if none is recorded. Collective.
  std::optional<std::string> merged_trace(const comm::Group& group);

 private:
  PhaseClock phases_;
  std::optional<Trace> trace_;
  std::int64_t trace_zero_ns_ = 0;
};

}  // namespace tessera::train
