#pragma once
/// \file
/// What a rank does that gives no sign of progress: by the processor time of all of its threads and the state of its
/// process (/proc), by its phase and its collective (the board).

#include <tessera/launch/watch/finding.h>

#include <cstdint>
#include <string>

namespace tessera::launch {

enum class Activity {
  ended,          ///< there is no such process any more
  traced,         ///< a debugger is attached
  in_collective,  ///< all of its threads that start collectives are blocked in one
  computes,       ///< it burns processor time, or would if it got a processor
  at_disk,        ///< it waits for a disk or a network file system (state D)
  long_phase,     ///< none of these, in a phase that it declares long
  sleeps,         ///< none of these: it waits for something that nobody knows
};

/// The use of processors by one process, second by second.
class CpuMeter {
 public:
  /// Counts what was used since the last look that counted, which is at least a second ago.
  void look(const ProcStatus& status, std::int64_t now_ns);
  /// Processors used during the last second; negative before there was one.
  double share() const { return share_; }
  /// At least 5 % of a processor.
  bool burns() const;
  /// It wants to run and gets less than a quarter of a processor.
  bool starves() const { return starves_; }
  bool knows() const { return share_ >= 0; }
  std::int64_t window_begin_ns() const { return begin_ns_; }  ///< begin of the second that share() is about

 private:
  std::int64_t ticks_ = 0, since_ns_ = 0, begin_ns_ = 0;
  double share_ = -1;
  bool starves_ = false;
};

Activity activity_of(const RankSlot& slot, RankState state, const std::optional<ProcStatus>& status,
                     const CpuMeter& meter);

/// "computes (0.98 of a processor), evaluating, step 40, evaluate": for people.
std::string describe_activity(Activity activity, const RankSlot& slot, RankState state, const CpuMeter& meter);

}  // namespace tessera::launch
