#pragma once
/// \file
/// Receives requests to stop the agent through a descriptor for poll().

#include <signal.h>

#include <tessera/launch/agent/unique_fd.h>

namespace tessera::launch {

/// While it exists, SIGINT, SIGTERM and (unless ignored, as under nohup) SIGHUP are queued instead of delivered. Create
/// it in the thread that handles them, before other threads exist. Only one may exist at a time.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const noexcept { return fd_.get(); }  ///< readable when a signal is pending
  int next() noexcept;                           ///< the next signal; 0: none is pending

 private:
  sigset_t mask_before_;
  struct sigaction child_before_;
  UniqueFd fd_;
};

}  // namespace tessera::launch
