#pragma once
/// \file
/// Computes how long to wait before ranks are restarted. Without a pause, a job that fails immediately would use up all
/// restarts in seconds, before a disk or network that it needs is back.

namespace tessera::launch {

/// The pause is `first` seconds after a generation without progress, and doubles after each subsequent one up to `most`
/// seconds. After a generation that made progress, the pause is 0 and the doubling starts over.
class RestartPause {
 public:
  RestartPause(double first, double most) : first_(first), most_(most) {}

  /// Seconds to wait before the next start. `progress`: the generation that has just failed made progress.
  double next(bool progress);

 private:
  double first_, most_, last_ = 0;
};

}  // namespace tessera::launch
