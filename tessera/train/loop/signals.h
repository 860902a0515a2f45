#pragma once
/// \file
/// Requests to stop. SIGTERM: finish the step, save, exit with code 3. SIGINT: finish the step, exit with 130; a second
/// SIGINT exits immediately. An evaluation is interrupted. The handlers only set a flag: the ranks agree on the step at
/// which they stop (training_step.cpp).

#include <memory>

namespace tessera::train {

enum class StopRequest : int { none = 0, terminate = 1, interrupt = 2 };

/// While an object exists, SIGTERM and SIGINT set the flag, and SIGPIPE is ignored (training does not end when a reader
/// of the log exits); its destructor restores the previous handlers. Only one may exist at a time, created by the main
/// thread, which gets a signal stack: the handlers must not run on the stack of a thread that multiplies matrices (see
/// the source).
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Requests received so far; interrupt outranks terminate.
  StopRequest requested() const;

 private:
  std::unique_ptr<char[]> stack_;
};

}  // namespace tessera::train
