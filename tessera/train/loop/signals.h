#pragma once
/// \file
/// Requests to stop. SIGTERM: finish the step, save, leave with exit code 3. SIGINT: finish the step, leave with 130; a
/// second SIGINT leaves at once. An evaluation is given up. The handlers only set a flag: ranks agree on the step at
/// which they stop (trainer.cpp).

#include <memory>

namespace tessera::train {

enum class StopRequest : int { none = 0, terminate = 1, interrupt = 2 };

/// While it lives, SIGTERM and SIGINT set the flag, and SIGPIPE is ignored (a reader of the log that goes away does not
/// end the training); afterwards the former handlers are back. One at a time, made by the main thread, which gets a
/// signal stack: the handlers must not run on the stack of a thread that multiplies matrices (see the source).
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// What was asked for so far; interrupt outranks terminate.
  StopRequest requested() const;

 private:
  std::unique_ptr<char[]> stack_;
};

}  // namespace tessera::train
