#pragma once
/// \file
/// Classifies the activity of a rank that shows no progress: by the processor time of all of its threads and the state
/// of its process (/proc), and by its phase and collective (the board).

#include <tessera/launch/watch/finding.h>

#include <cstdint>
#include <string>

namespace tessera::launch {

enum class Activity {
  ended,          ///< the process no longer exists
  traced,         ///< a debugger is attached
  in_collective,  ///< all of its threads that start collectives are blocked in one
  computes,       ///< it uses processor time, or would if it got a processor
  at_disk,        ///< it waits for a disk or a network file system (state D)
  long_phase,     ///< none of the above, in a phase that it has declared long
  sleeps,         ///< none of the above: it waits for something unknown
};

/// Processor use of one process, in windows of a second.
class CpuMeter {
 public:
  /// Measures the use since the previous measurement; calls less than a second after that are ignored.
  void look(const ProcStatus& status, std::int64_t now_ns);
  /// Processors used during the last window; negative before the first one.
  double share() const { return share_; }
  /// Whether it uses at least 5 % of a processor.
  bool burns() const;
  /// Whether it is runnable but gets less than a quarter of a processor.
  bool starves() const { return starves_; }
  bool knows() const { return share_ >= 0; }
  std::int64_t window_begin_ns() const { return begin_ns_; }  ///< start of the window of share()

 private:
  std::int64_t ticks_ = 0, since_ns_ = 0, begin_ns_ = 0;
  double share_ = -1;
  bool starves_ = false;
};

Activity activity_of(const RankSlot& slot, RankState state, const std::optional<ProcStatus>& status,
                     const CpuMeter& meter);

/// "computes (0.98 of a processor), evaluating, step 40, evaluate", for messages.
std::string describe_activity(Activity activity, const RankSlot& slot, RankState state, const CpuMeter& meter);

}  // namespace tessera::launch
