#pragma once
/// \file
/// parallel/recorder/: records what one step of a user's module does, for any consumer (docs/planning.md). This header:
/// intercepts every operator of a step below autograd, so that backward's operators are recorded like forward's.
///
/// The dispatch key `Fake` has no kernels in LibTorch (2.11, 2.15) and is below Autograd. While it is included in a
/// thread's state (which backward's threads inherit), every operator reaches a boxed fallback, is recorded, and
/// continues; operators nested in it are not recorded. Nothing is changed: values, gradients and random numbers are
/// those of an unrecorded step.

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
  std::span<const c10::IValue> arguments;  ///< as given
  std::span<const c10::IValue> results;
};

/// Sits between autograd and the kernels: every operator is passed to it instead of running.
class OperatorHandler {
 public:
  virtual ~OperatorHandler() = default;
  /// Pops the operator's arguments from `stack` and pushes its results, for example by op.redispatchBoxed(below,
  /// stack). Called on the thread that runs the operator; backward may run on several threads, one per device.
  virtual void run(const c10::OperatorHandle& op, c10::DispatchKeySet below, std::vector<c10::IValue>* stack) = 0;
};

/// Runs `op` without passing it, or any operator nested in it, to handlers.
void run_unseen(const c10::OperatorHandle& op, c10::DispatchKeySet below, std::vector<c10::IValue>* stack);
/// Whether `op` is composed of other operators, which reach a handler themselves; it may still have its own kernel for
/// some devices.
bool is_composite(const c10::OperatorHandle& op, c10::DispatchKeySet below);

/// Observes operators and lets them run.
class OperatorListener : public OperatorHandler {
 public:
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below, std::vector<c10::IValue>* stack) final;
  /// Called before `op` runs. before() and after() are not called for operators that only make views or read metadata.
  /// Both are called on the thread that runs the operator; backward may run on several threads, one per device.
  virtual void before(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) = 0;
  /// Called after the operator has run, on the same thread.
  virtual void after(const SeenOperator& seen) = 0;
};

/// While it exists, `handler` is called for every operator of the calling thread and of backward passes that it starts.
/// One at a time per process; throws Error for a second one.
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

/// Whether the calling thread's operators are being intercepted; false inside an intercepted operator.
bool listening_here();

}  // namespace tessera::parallel
