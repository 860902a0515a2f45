#include <tessera/parallel/dispatch/managed_visit.h>

#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace tessera::parallel::detail {
namespace {

// An operator's C++ signature matches its schema: written tensors are passed as Tensor&.
void look(Arguments& all, at::Tensor& tensor) { all.look(tensor, /*writes=*/true); }
void look(Arguments& all, const at::Tensor& tensor) { all.look(tensor, /*writes=*/false); }
void look(Arguments& all, const std::optional<at::Tensor>& tensor) {
  if (tensor) all.look(*tensor, /*writes=*/false);
}
void look(Arguments& all, const at::ITensorListRef& tensors) {
  for (const at::Tensor& tensor : tensors) all.look(tensor, /*writes=*/false);
}
template <class Value, class... Types>
constexpr bool one_of = (std::is_same_v<Value, Types> || ...);
/// Types without tensors; a type missing here does not compile.
template <class Value>
  requires one_of<Value, bool, std::int64_t, double, at::Scalar, c10::SymInt, c10::SymIntArrayRef,
                  at::OptionalSymIntArrayRef, std::array<bool, 3>>
void look(Arguments&, const Value&) {}

template <class Op, class Schema = typename Op::schema>
struct Direct;

template <class Op, class Result, class... Values>
struct Direct<Op, Result(Values...)> {
  static Result run(c10::DispatchKeySet keys, Values... values) {
    Arguments all;
    (look(all, values), ...);
    if (all.others || all.caster != nullptr || c10::impl::tls_is_dispatch_key_included(managed_key)) [[unlikely]] {
      static const auto op = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow(Op::name, Op::overload_name)
                                 .template typed<Result(Values...)>();
      static const c10::KernelFunction boxed = c10::KernelFunction::makeFromBoxedFunction<&fallback>();
      return boxed.call<Result, Values...>(op, keys, std::forward<Values>(values)...);
    }
    all.visit.enter(Op::name);
    const c10::impl::ExcludeDispatchKeyGuard nested(managed_key);
    return Op::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, managed_key),
                          std::forward<Values>(values)...);
  }
};

template <class Op>
void add(std::vector<c10::RegistrationHandleRAII>& held) {
  held.push_back(c10::Dispatcher::singleton().registerImpl(
      {Op::name, Op::overload_name}, managed_key,
      c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN((&Direct<Op>::run))),
      c10::impl::CppSignature::make<typename Op::schema>(), nullptr, "tessera: managed parameters"));
}

template <class... Ops>
void add_all(std::vector<c10::RegistrationHandleRAII>& held) {
  (add<Ops>(held), ...);
}

}  // namespace

void register_direct(std::vector<c10::RegistrationHandleRAII>& held) {
  using namespace at::_ops;
  add_all<linear, matmul, mm, addmm, bmm, mul_Tensor, add_Tensor, add__Tensor, cat, embedding, layer_norm,
          native_layer_norm, native_layer_norm_backward, convolution, convolution_backward>(held);
}

}  // namespace tessera::parallel::detail
