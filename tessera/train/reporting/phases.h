#pragma once
/// \file
/// Measures how the time of a step is spent.

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera::train {

/// Activity of a process. communication: blocked in a collective, no matter in which phase (communication that
/// overlaps with computing costs nothing and is not counted); other: between two steps (logs, evaluations, checkpoints,
/// reports).
enum class Phase { data, forward, backward, communication, optimizer, other };
inline constexpr std::size_t phase_count = 6;  ///< enumerators of Phase
inline constexpr std::string_view phase_names[phase_count] = {"data",          "forward",   "backward",
                                                              "communication", "optimizer", "other"};

/// Seconds by phase; index with seconds[static_cast<std::size_t>(Phase::data)] or at(seconds, Phase::data).
using PhaseSeconds = std::array<double, phase_count>;
inline double& at(PhaseSeconds& seconds, Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
inline double at(const PhaseSeconds& seconds, Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }

/// Books time on consecutive phases. Each change costs a clock reading and a pass over the collectives' totals. Not
/// thread-safe.
class PhaseClock {
 public:
  /// Ends the current phase and starts `phase`. Time that callers of collectives spent blocked since the last change
  /// (comm::recorder) is booked as communication instead of the ending phase.
  void enter(Phase phase);
  /// Same, with both readings given: nanoseconds of a monotonic clock, seconds blocked since the process started.
  void enter(Phase phase, std::int64_t now_ns, double blocked_seconds);
  /// Returns the same as take() without resetting anything.
  const PhaseSeconds& booked() const { return seconds_; }
  /// Returns the seconds since the last take(), up to the last change of phase, and resets them. Nothing is booked
  /// before the first enter().
  PhaseSeconds take();

 private:
  PhaseSeconds seconds_ = {};
  Phase phase_ = Phase::other;
  bool running_ = false;
  std::int64_t since_ns_ = 0;
  double blocked_seconds_ = 0;
};

}  // namespace tessera::train
