#pragma once
/// \file
/// Internal to managed*.cpp: the managed units among one operator's arguments, kept present while it runs.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <tessera/base/error.h>
#include <tessera/parallel/dispatch/managed.h>
#include <tessera/parallel/dispatch/managed_memory.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

namespace c10 {
class OperatorHandle;
class RegistrationHandleRAII;
}  // namespace c10

namespace tessera::parallel::detail {

/// The units that an operator receives; keeps them present until destroyed.
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
    if (!items_.empty() && items_.back().materializer == memory.materializer && items_.back().unit == memory.unit)
      items_.back().writes |= writes;
    else
      items_.push_back({memory.materializer, memory.unit, writes});
  }

  /// Enters all units at once, so that making one present cannot free another that the same operator needs.
  void enter(const char* op) {
    if (items_.size() > 1)
      std::ranges::sort(items_, [](const Item& a, const Item& b) {
        return a.materializer != b.materializer ? std::less<>()(a.materializer, b.materializer) : a.unit < b.unit;
      });
    for (const Item& item : items_) {
      if (groups_.empty() || groups_.back().materializer != item.materializer)
        groups_.push_back({item.materializer, units_.size(), 0, false});
      Group& group = groups_.back();
      if (group.count == 0 || units_.back() != item.unit) units_.push_back(item.unit), ++group.count;
      group.writes |= item.writes;
    }
    for (const Group& group : groups_) {
      group.materializer->enter(units(group), group.writes, op);
      ++entered_;
    }
  }

 private:
  struct Item {
    Materializer* materializer;
    std::size_t unit;
    bool writes;
  };
  struct Group {  // units_[first, first + count), of one materializer
    Materializer* materializer;
    std::size_t first, count;
    bool writes;
  };
  std::span<const std::size_t> units(const Group& group) const { return {units_.data() + group.first, group.count}; }
  void leave(const Group& group) noexcept { group.materializer->leave(units(group)); }

  c10::SmallVector<Item, 4> items_;
  c10::SmallVector<std::size_t, 4> units_;
  c10::SmallVector<Group, 1> groups_;
  std::size_t entered_ = 0;
};

/// The managed memory among the arguments of one call.
struct Arguments {
  Visit visit;
  bool others = false;             ///< an argument has the key on a storage that is not managed
  const Memory* caster = nullptr;  ///< the first argument that requires the other inputs in its dtype
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

/// The key's fallback, for operators without their own kernel for the key.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack);
/// Registers unboxed kernels for the operators that modules use most. They do the same as the fallback without boxing
/// the arguments, which is half of its cost.
void register_direct(std::vector<c10::RegistrationHandleRAII>& held);

}  // namespace tessera::parallel::detail
