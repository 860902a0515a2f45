#pragma once
/// \file
/// What a process does, for everybody who wants to know: the phases' times, the watchers (comm/heartbeat.h) and, with
/// --profile, the timeline.

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
  /// What follows is booked on `phase`; `name` is what people see of it.
  void enter(Phase phase, std::string_view name);
  void enter(Phase phase) { enter(phase, phase_names[static_cast<std::size_t>(phase)]); }
  const PhaseSeconds& booked() const { return phases_.booked(); }
  PhaseSeconds take() { return phases_.take(); }

  /// From now on a timeline is kept. Collective.
  void start_trace(const comm::Group& group, bool one_host);
  /// Takes the collectives since the last call into the timeline, if there is one.
  void collect();
  /// The timeline of all ranks, on rank 0; nothing where none is kept. Collective.
  std::optional<std::string> merged_trace(const comm::Group& group);

 private:
  PhaseClock phases_;
  std::optional<Trace> trace_;
  std::int64_t trace_zero_ns_ = 0;
};

}  // namespace tessera::train
