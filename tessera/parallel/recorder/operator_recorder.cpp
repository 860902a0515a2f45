#include <tessera/parallel/recorder/operator_recorder.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <tessera/base/error.h>
#include <tessera/parallel/dispatch/operator_facts.h>

#include <atomic>
#include <vector>

namespace tessera::parallel {
namespace {

using torch::jit::Stack;

/// Has no kernels in LibTorch (2.11, 2.15); below Autograd and above the keys that run kernels.
constexpr c10::DispatchKey recorded_key = c10::DispatchKey::Fake;

std::atomic<OperatorHandler*> handler{nullptr};

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, recorded_key);
  OperatorHandler* const current = handler.load(std::memory_order_acquire);
  if (current == nullptr) return op.redispatchBoxed(below, stack);
  current->run(op, below, stack);
}

void register_fallback() {
  // Never undone: threads may still run operators while the process exits.
  static const auto* const registration = new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerFallback(
      recorded_key, c10::KernelFunction::makeFromBoxedFunction<&fallback>(), "tessera: recorded steps"));
  (void)registration;
}

}  // namespace

bool is_composite(const c10::OperatorHandle& op, c10::DispatchKeySet below) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(below.highestPriorityTypeId());
}

void run_unseen(const c10::OperatorHandle& op, c10::DispatchKeySet below, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard nested(recorded_key);
  op.redispatchBoxed(below, stack);
}

void OperatorListener::run(const c10::OperatorHandle& op, c10::DispatchKeySet below, Stack* stack) {
  // Views do nothing. Composite operators, which reach this key under no_grad guards, are recorded by their parts.
  if (detail::known_facts(op).passes || is_composite(op, below)) return op.redispatchBoxed(below, stack);
  const std::size_t count = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const c10::impl::ExcludeDispatchKeyGuard nested(recorded_key);
  before(op, arguments);
  op.redispatchBoxed(below, stack);
  const std::size_t results = op.schema().returns().size();
  after({op, arguments, std::span(*stack).last(results)});
}

struct ListenToOperators::Impl {
  c10::impl::IncludeDispatchKeyGuard include{recorded_key};
};

ListenToOperators::ListenToOperators(OperatorHandler& new_handler) {
  OperatorHandler* nobody = nullptr;
  register_fallback();
  if (!handler.compare_exchange_strong(nobody, &new_handler))
    throw Error("a step is already being recorded; only one at a time per process");
  impl_ = std::make_unique<Impl>();
}

bool listening_here() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return keys.included_.has(recorded_key) && !keys.excluded_.has(recorded_key);
}

ListenToOperators::~ListenToOperators() {
  impl_.reset();
  handler.store(nullptr, std::memory_order_release);
}

}  // namespace tessera::parallel
