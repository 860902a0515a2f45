#pragma once
/// \file
/// How long to wait before the ranks are started again: a job that fails at once would use up all restarts in seconds,
/// before a disk or a network that it needs is back.

namespace tessera::launch {

/// `first` seconds after a generation that made no progress, twice as long after each further one, at most `most`
/// seconds. None after a generation that made progress, and then from the beginning.
class RestartPause {
 public:
  RestartPause(double first, double most) : first_(first), most_(most) {}

  /// Seconds to wait now. `progress`: the generation that has just failed made some.
  double next(bool progress);

 private:
  double first_, most_, last_ = 0;
};

}  // namespace tessera::launch
