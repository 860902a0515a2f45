#pragma once
/// \file
/// Whether this thread is inside a call of the library. exit() from a signal handler that interrupted such a call must
/// not wait for the call, whose frame is below it: worlds are then left open, and other ranks see a lost one.

namespace tessera::wire {

/// Counts the calls on this thread's stack.
class Inside {
 public:
  Inside() { ++depth(); }
  ~Inside() { --depth(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  static bool now() { return depth() > 0; }

 private:
  static int& depth() {
    static thread_local int value = 0;
    return value;
  }
};

}  // namespace tessera::wire
