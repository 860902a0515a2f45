#pragma once
/// \file
/// parallel/recorder/: what one step of somebody's module does, written down once for whoever wants to know
/// (docs/planning.md). This header: every operator of a step below autograd, so that those of backward are seen like
/// those of forward.
///
/// The dispatch key `Fake` is unused in LibTorch 2.11 and lies below Autograd. While it is included in a thread's state
/// (which backward's threads inherit), every operator comes to a boxed fallback, is looked at, and goes on; operators
/// nested in it are its own business. Nothing is changed: values, gradients and random numbers are those of a step that
/// nobody watches.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace c10 {
class DispatchKeySet;
class OperatorHandle;
}  // namespace c10

namespace tessera::parallel {

/// An operator that has run.
struct SeenOperator {
  const c10::OperatorHandle& op;
  std::span<const c10::IValue> arguments;  ///< as they were given
  std::span<const c10::IValue> results;
};

/// Stands between autograd and the kernels: every operator comes here instead of running.
class OperatorHandler {
 public:
  virtual ~OperatorHandler() = default;
  /// Takes the operator's arguments off `stack` and puts its results there, perhaps by
  /// op.redispatchBoxed(below, stack). Backward may run on several threads, one for each device: called on the thread
  /// that runs the operator.
  virtual void run(const c10::OperatorHandle& op, c10::DispatchKeySet below, std::vector<c10::IValue>* stack) = 0;
};

/// Runs `op` with all that it consists of unseen by handlers.
void run_unseen(const c10::OperatorHandle& op, c10::DispatchKeySet below, std::vector<c10::IValue>* stack);
/// Whether `op` consists of others, which come to a handler by themselves; some have a kernel for some devices besides.
bool is_composite(const c10::OperatorHandle& op, c10::DispatchKeySet below);

/// Listens to operators, and lets them run.
class OperatorListener : public OperatorHandler {
 public:
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below, std::vector<c10::IValue>* stack) final;
  /// `op` is about to run. before() and after() are not called for operators that make views or look at metadata.
  /// Backward may run on several threads, one for each device: both are called on the thread that runs the operator.
  virtual void before(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) = 0;
  /// What has run, on the same thread.
  virtual void after(const SeenOperator& seen) = 0;
};

/// While it lives, `handler` is called for every operator of the calling thread and of backward passes that it starts.
/// One at a time in a process; throws Error for a second one.
class ListenToOperators {
 public:
  explicit ListenToOperators(OperatorHandler& handler);
  ~ListenToOperators();
  ListenToOperators(const ListenToOperators&) = delete;
  ListenToOperators& operator=(const ListenToOperators&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether the calling thread's operators are listened to now: not within one of them.
bool listening_here();

}  // namespace tessera::parallel
