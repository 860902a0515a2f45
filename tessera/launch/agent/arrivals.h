#pragma once
/// \file
/// Reports the ranks that have not reached tessera::init() while others wait for them there, and the state of their
/// processes. A program that never calls init() is not reported: nothing is printed before the first rank has arrived.

#include <tessera/launch/watch/proc_status.h>

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

class Arrivals {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using ReadStatus = std::function<std::optional<ProcStatus>(pid_t)>;

  struct Rank {
    int rank = 0;
    pid_t pid = 0;
    bool came = false;   ///< to the board
    bool waits = false;  ///< in the rendezvous
  };

  /// Missing ranks are listed `first` seconds after the first rank was seen waiting, and every `next` seconds after
  /// that.
  explicit Arrivals(double first = 5, double next = 10, ReadStatus read_status = read_proc_status);

  /// Returns the message to print now, if any: "waited 5 s for ranks 1, 3 of this host; here: ranks 0, 2. Rank 1 (pid
  /// 7): S (sleeping). ...". `ranks`: the running ranks of this host.
  std::optional<std::string> look(const std::vector<Rank>& ranks, Time now);

 private:
  double first_, next_;
  ReadStatus read_status_;
  std::optional<Time> since_;
  Time notice_{};
};

}  // namespace tessera::launch
