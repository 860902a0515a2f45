#include <tessera/parallel/sharding/managed.h>

#include <tessera/base/error.h>
#include <tessera/nn/present.h>
#include <tessera/parallel/sharding/managed_memory.h>
#include <tessera/parallel/sharding/operator_facts.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace tessera::parallel {
namespace {

using detail::Memory;
using torch::jit::Stack;

static_assert(managed_key == nn::present_key);

/// The units that an operator is given, and the time during which they are present.
class Visit {
 public:
  Visit() = default;
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit() {
    while (entered_ > 0) leave(groups_[--entered_]);
  }

  bool empty() const { return items_.empty(); }

  void add(const Memory& memory, bool writes) {
    TESSERA_CHECK(memory.owner != nullptr,
                  "an operator received a parameter, or a view of one, whose sharding object was destroyed; keep the "
                  "sharding object as long as the module is used");
    if (!items_.empty() && items_.back().guardian == memory.guardian && items_.back().unit == memory.unit)
      items_.back().writes |= writes;
    else
      items_.push_back({memory.guardian, memory.unit, writes});
  }

  /// All units at once, so that bringing one cannot drop another that the same operator needs.
  void enter(const char* op) {
    if (items_.size() > 1)
      std::ranges::sort(items_, [](const Item& a, const Item& b) {
        return a.guardian != b.guardian ? std::less<>()(a.guardian, b.guardian) : a.unit < b.unit;
      });
    for (const Item& item : items_) {
      if (groups_.empty() || groups_.back().guardian != item.guardian)
        groups_.push_back({item.guardian, units_.size(), 0, false});
      Group& group = groups_.back();
      if (group.count == 0 || units_.back() != item.unit) units_.push_back(item.unit), ++group.count;
      group.writes |= item.writes;
    }
    for (const Group& group : groups_) {
      group.guardian->enter(units(group), group.writes, op);
      ++entered_;
    }
  }

 private:
  struct Item {
    Guardian* guardian;
    std::size_t unit;
    bool writes;
  };
  struct Group {  // units_[first, first + count) are of one guardian
    Guardian* guardian;
    std::size_t first, count;
    bool writes;
  };
  std::span<const std::size_t> units(const Group& group) const { return {units_.data() + group.first, group.count}; }
  void leave(const Group& group) noexcept { group.guardian->leave(units(group)); }

  c10::SmallVector<Item, 4> items_;
  c10::SmallVector<std::size_t, 4> units_;
  c10::SmallVector<Group, 1> groups_;
  std::size_t entered_ = 0;
};

std::atomic<KeyFallback>& deferred_fallback() {
  static std::atomic<KeyFallback> fallback{nullptr};
  return fallback;
}

/// What the arguments of one call hold.
struct Arguments {
  Visit visit;
  bool others = false;             ///< the key over a storage that is not managed
  const Memory* caster = nullptr;  ///< the first that wants other inputs in its dtype
  at::ScalarType dtype = at::kFloat;

  void look(const at::Tensor& tensor, bool writes) {
    const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    if (!impl->key_set().has(managed_key)) return;
    const Memory* const memory = detail::memory_of(*impl);
    if (memory == nullptr) {
      others = true;
      return;
    }
    visit.add(*memory, writes);
    if (memory->cast_inputs && caster == nullptr) caster = memory, dtype = tensor.scalar_type();
  }
};

bool is_list(const detail::OperatorFacts& facts, std::size_t i) { return i >= 64 || (facts.lists >> i & 1) != 0; }

void look(Arguments& all, const detail::OperatorFacts& facts, at::ArrayRef<c10::IValue> values) {
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

/// Above Autograd, so that gradients come back in the inputs' own dtype.
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

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const detail::OperatorFacts& facts = detail::known_facts(op);
  const std::size_t count = op.schema().arguments().size(), first = stack->size() - count;
  Arguments all;
  look(all, facts, at::ArrayRef<c10::IValue>(*stack).slice(first, count));
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

void* present_enter(const at::Tensor* const* tensors, std::size_t count) {
  auto visit = std::make_unique<Visit>();
  for (std::size_t i = 0; i < count; ++i) {
    if (tensors[i] == nullptr || !is_managed(*tensors[i])) continue;
    if (const Memory* memory = detail::memory_of(*tensors[i]->unsafeGetTensorImpl())) visit->add(*memory, false);
  }
  if (visit->empty()) return nullptr;
  visit->enter("a fused function");
  return visit.release();
}

void present_leave(void* visit) noexcept { delete static_cast<Visit*>(visit); }

/// Holds the registrations. Operators that pass are given a fallthrough, so that the dispatcher does not even look at
/// the key for them; one that is registered later comes to the fallback, which passes it on.
struct Registrations {
  Registrations() {
    auto& dispatcher = c10::Dispatcher::singleton();
    held.push_back(dispatcher.registerFallback(managed_key, c10::KernelFunction::makeFromBoxedFunction<&fallback>(),
                                               "tessera: managed parameters"));
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (op && detail::operator_facts(*op).passes && !op->hasKernelForDispatchKey(managed_key))
        held.push_back(dispatcher.registerImpl(name, managed_key, c10::KernelFunction::makeFallthrough(), std::nullopt,
                                               nullptr, "tessera: reads no data of managed parameters"));
    }
    nn::set_present_hooks({&present_enter, &present_leave});
  }
  std::vector<c10::RegistrationHandleRAII> held;
};

}  // namespace

void detail::register_key() {
  // Never undone: threads may still run operators while the process ends.
  static const Registrations* const registrations = new Registrations;
  (void)registrations;
}

void set_deferred_fallback(KeyFallback fallback) {
  deferred_fallback().store(fallback, std::memory_order_release);
  detail::register_key();
}

Present::Present(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors, const char* op) {
  auto visit = std::make_unique<Visit>();
  for (const at::Tensor& tensor : tensors) {
    if (!is_managed(tensor)) continue;
    if (const Memory* memory = detail::memory_of(*tensor.unsafeGetTensorImpl())) visit->add(*memory, false);
  }
  if (visit->empty()) return;
  visit->enter(op);
  token_ = visit.release();
}

Present::~Present() { present_leave(token_); }

}  // namespace tessera::parallel
