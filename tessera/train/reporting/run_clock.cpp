#include <tessera/train/reporting/run_clock.h>

#include <tessera/comm/heartbeat.h>

namespace tessera::train {

void RunClock::enter(Phase phase, std::string_view name) {
  phases_.enter(phase);
  if (trace_) trace_->phase(phase == Phase::other && name == "other" ? "" : name);
  comm::heartbeat().set_phase(name);
}

void RunClock::start_trace(const comm::Group& group, bool one_host) {
  trace_zero_ns_ = common_zero(group, one_host);
  trace_.emplace();
}

void RunClock::collect() {
  if (trace_) trace_->collect();
}

std::optional<std::string> RunClock::merged_trace(const comm::Group& group) {
  if (!trace_) return std::nullopt;
  trace_->collect();
  return merge_traces(*trace_, trace_zero_ns_, group);
}

}  // namespace tessera::train
