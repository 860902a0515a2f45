#include <tessera/parallel/dispatch/managed.h>

#include <tessera/nn/materialized.h>
#include <tessera/parallel/dispatch/managed_visit.h>
#include <tessera/parallel/dispatch/operator_facts.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <memory>

namespace tessera::parallel {
namespace {

using detail::Arguments;
using detail::Memory;
using detail::Visit;
using torch::jit::Stack;

static_assert(managed_key == nn::managed_key);

std::atomic<KeyFallback>& deferred_fallback() {
  static std::atomic<KeyFallback> fallback{nullptr};
  return fallback;
}

bool is_list(const detail::OperatorFacts& facts, std::size_t i) { return i >= 64 || (facts.lists >> i & 1) != 0; }

void look_at_values(Arguments& all, const detail::OperatorFacts& facts, at::ArrayRef<c10::IValue> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const c10::IValue& value = values[i];
    const bool writes = i < 64 && (facts.writes >> i & 1) != 0;
    if (value.isTensor()) {
      all.look(value.toTensor(), writes);
    } else if (is_list(facts, i) && value.isList()) {
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor()) all.look(element.toTensor(), writes);
    }
  }
}

bool to_cast(const c10::IValue& value, at::ScalarType dtype) {
  if (!value.isTensor()) return false;
  const at::Tensor& t = value.toTensor();
  return t.defined() && t.layout() == c10::Layout::Strided && t.is_floating_point() && t.dim() > 0 &&
         t.scalar_type() != dtype && !t.key_set().has(managed_key);
}

/// Runs above Autograd, so that gradients are returned in the inputs' own dtype.
void cast_inputs(const detail::OperatorFacts& facts, at::ScalarType dtype, Stack& stack, std::size_t first) {
  for (std::size_t i = first; i < stack.size(); ++i) {
    if (to_cast(stack[i], dtype)) {
      stack[i] = stack[i].toTensor().to(dtype);
    } else if (is_list(facts, i - first) && stack[i].isTensorList()) {
      std::vector<at::Tensor> tensors = stack[i].toTensorVector();
      bool any = false;
      for (at::Tensor& tensor : tensors)
        if (to_cast(tensor, dtype)) tensor = tensor.to(dtype), any = true;
      if (any) stack[i] = std::move(tensors);
    }
  }
}

}  // namespace

namespace {

thread_local OperatorWatcher* operator_watcher = nullptr;

void set_watcher(OperatorWatcher* watcher) {
  operator_watcher = watcher;
  c10::impl::tls_set_dispatch_key_included(managed_key, watcher != nullptr);
}

void call_plainly(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const detail::OperatorFacts& facts = detail::known_facts(op);
  const std::size_t count = op.schema().arguments().size(), first = stack->size() - count;
  Arguments all;
  look_at_values(all, facts, at::ArrayRef<c10::IValue>(*stack).slice(first, count));
  if (all.others || c10::impl::tls_is_dispatch_key_included(managed_key)) {
    const KeyFallback deferred = deferred_fallback().load(std::memory_order_acquire);
    if (deferred != nullptr && deferred(op, keys, stack)) return;
  }
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, managed_key);
  if (facts.passes) return op.redispatchBoxed(below, stack);
  if (all.caster != nullptr && facts.wants_one_dtype) cast_inputs(facts, all.dtype, *stack, first);
  all.visit.enter(op.operator_name().name.c_str());
  const c10::impl::ExcludeDispatchKeyGuard nested(managed_key);
  op.redispatchBoxed(below, stack);
}

}  // namespace

void detail::fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  OperatorWatcher* const watcher = operator_watcher;
  if (watcher == nullptr || detail::known_facts(op).passes) return call_plainly(op, keys, stack);
  struct Pause {  // nested operators are not watched
    OperatorWatcher* watcher;
    ~Pause() { set_watcher(watcher); }
  } const pause{watcher};
  set_watcher(nullptr);
  watcher->called(op, stack, [&] { call_plainly(op, keys, stack); });
}

WatchOperators::WatchOperators(OperatorWatcher& watcher) {
  TESSERA_CHECK(!c10::impl::tls_is_dispatch_key_included(managed_key),
                "operators are already watched, or this is inside a DeferredScope");
  detail::register_key();
  set_watcher(&watcher);
}
WatchOperators::~WatchOperators() { set_watcher(nullptr); }

namespace {

void* materialize_enter(const at::Tensor* const* tensors, std::size_t count) {
  auto visit = std::make_unique<Visit>();
  for (std::size_t i = 0; i < count; ++i) {
    if (tensors[i] == nullptr || !is_managed(*tensors[i])) continue;
    if (const Memory* memory = detail::memory_of(*tensors[i]->unsafeGetTensorImpl())) visit->add(*memory, false);
  }
  if (visit->empty()) return nullptr;
  visit->enter("a fused function");
  return visit.release();
}

void materialize_leave(void* visit) noexcept { delete static_cast<Visit*>(visit); }

/// Holds the registrations. Operators that read no data get a fallthrough, so that the dispatcher ignores the key for
/// them; one that is registered later reaches the fallback, which passes it on.
struct Registrations {
  Registrations() {
    auto& dispatcher = c10::Dispatcher::singleton();
    held.push_back(dispatcher.registerFallback(
        managed_key, c10::KernelFunction::makeFromBoxedFunction<&detail::fallback>(), "tessera: managed parameters"));
    detail::register_direct(held);
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (op && detail::operator_facts(*op).passes && !op->hasKernelForDispatchKey(managed_key))
        held.push_back(dispatcher.registerImpl(name, managed_key, c10::KernelFunction::makeFallthrough(), std::nullopt,
                                               nullptr, "tessera: reads no data of managed parameters"));
    }
    nn::set_materialize_hooks({&materialize_enter, &materialize_leave});
  }
  std::vector<c10::RegistrationHandleRAII> held;
};

}  // namespace

void detail::register_key() {
  // Never undone: threads may still run operators while the process exits.
  static const Registrations* const registrations = new Registrations;
  (void)registrations;
}

void set_deferred_fallback(KeyFallback fallback) {
  deferred_fallback().store(fallback, std::memory_order_release);
  detail::register_key();
}

Materialized::Materialized(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors, const char* op) {
  auto visit = std::make_unique<Visit>();
  for (const at::Tensor& tensor : tensors) {
    if (!is_managed(tensor)) continue;
    if (const Memory* memory = detail::memory_of(*tensor.unsafeGetTensorImpl())) visit->add(*memory, false);
  }
  if (visit->empty()) return;
  visit->enter(op);
  token_ = visit.release();
}

Materialized::~Materialized() { materialize_leave(token_); }

}  // namespace tessera::parallel
