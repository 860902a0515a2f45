#include <tessera/parallel/deferred/deferred.h>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <tessera/parallel/deferred/deferred_storage.h>
#include <tessera/parallel/dispatch/managed.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace tessera::parallel {

namespace {

using torch::jit::Stack;

// Composed of `empty` and one initialiser, which reach the fallback themselves while the key stays included.
constexpr std::array<std::string_view, 15> factories = {
    "aten::full",       "aten::full_like", "aten::new_empty", "aten::new_empty_strided",
    "aten::new_full",   "aten::new_ones",  "aten::new_zeros", "aten::ones",
    "aten::ones_like",  "aten::rand",      "aten::rand_like", "aten::randn",
    "aten::randn_like", "aten::zeros",     "aten::zeros_like"};

// The values that these write into self depend only on self, numbers and a generator.
constexpr std::array<std::string_view, 36> initialisers = {
    "aten::abs_",    "aten::add_",       "aten::bernoulli_",   "aten::cauchy_",     "aten::ceil_",
    "aten::clamp_",  "aten::clamp_max_", "aten::clamp_min_",   "aten::cos_",        "aten::div_",
    "aten::erfinv_", "aten::exp_",       "aten::exponential_", "aten::fill_",       "aten::fill_diagonal_",
    "aten::floor_",  "aten::geometric_", "aten::log_",         "aten::log_normal_", "aten::mul_",
    "aten::neg_",    "aten::normal_",    "aten::pow_",         "aten::random_",     "aten::reciprocal_",
    "aten::round_",  "aten::rsqrt_",     "aten::sign_",        "aten::sin_",        "aten::sqrt_",
    "aten::square_", "aten::sub_",       "aten::tril_",        "aten::triu_",       "aten::uniform_",
    "aten::zero_"};

template <std::size_t n>
bool contains(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::span<const c10::IValue> arguments_of(const c10::OperatorHandle& op, const Stack& stack) {
  const std::size_t n = op.schema().arguments().size();
  return {stack.data() + (stack.size() - n), n};
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

void return_instead(const c10::OperatorHandle& op, Stack* stack, at::Tensor result) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->emplace_back(std::move(result));
}

bool in_scope() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return keys.included_.has(managed_key) && !keys.excluded_.has(managed_key);
}

// (int[] size, ScalarType?, Layout?, Device?, bool? pin, MemoryFormat?) or (size, stride, ScalarType?, ...); undefined
// if it is not a plain CPU tensor.
at::Tensor made_without_memory(std::span<const c10::IValue> arguments, bool strided) {
  const std::size_t options = strided ? 2 : 1;
  const auto given = [&](std::size_t i) { return !arguments[i].isNone(); };
  if (!arguments[0].isIntList() || (strided && !arguments[1].isIntList())) return {};
  if (given(options + 1) && arguments[options + 1].toLayout() != at::kStrided) return {};
  if (given(options + 2) && !arguments[options + 2].toDevice().is_cpu()) return {};
  if (given(options + 3) && arguments[options + 3].toBool()) return {};
  const at::ScalarType dtype =
      given(options) ? arguments[options].toScalarType() : c10::typeMetaToScalarType(c10::get_default_dtype());
  if (!c10::isFloatingType(dtype) && !c10::isIntegralType(dtype, /*includeBool=*/true) && !c10::isComplexType(dtype)) {
    return {};
  }
  const c10::DimVector sizes = arguments[0].toDimVector();
  const auto negative = [](const c10::DimVector& numbers) {
    return std::any_of(numbers.begin(), numbers.end(), [](std::int64_t n) { return n < 0; });
  };
  if (negative(sizes) || c10::multiply_integers(sizes) == 0) return {};
  if (strided) {
    const c10::DimVector strides = arguments[1].toDimVector();
    if (strides.size() != sizes.size() || negative(strides)) return {};
    return DeferredStorage::make(sizes, strides, at::MemoryFormat::Contiguous, dtype);
  }
  const auto format = given(options + 4) ? arguments[options + 4].toMemoryFormat() : at::MemoryFormat::Contiguous;
  if (format == at::MemoryFormat::Preserve) return {};
  return DeferredStorage::make(sizes, std::nullopt, format, dtype);
}

// Whether an operator on these may be replayed instead of run. Not when autograd is involved (it records or refuses the
// change).
bool loggable(std::span<const c10::IValue> arguments) {
  if (arguments.empty() || !arguments[0].isTensor() || !DeferredStorage::has(arguments[0].toTensor())) return false;
  if (at::GradMode::is_enabled() && arguments[0].toTensor().requires_grad()) return false;
  for (const c10::IValue& argument : arguments.subspan(1)) {
    bool plain = true;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      plain = plain && (!tensor.defined() || (tensor.numel() == 1 && tensor.is_cpu() && !tensor.requires_grad() &&
                                              !tensor.key_set().has(managed_key)));
    });
    if (!plain) return false;
  }
  return true;
}

std::optional<std::size_t> generator_argument(const c10::OperatorHandle& op) {
  const auto& declared = op.schema().arguments();
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].name() == "generator") return i;
  }
  return std::nullopt;
}

// mul.Tensor -> mul_.Tensor: the in-place form, if it is an initialiser without random numbers.
std::optional<c10::OperatorHandle> in_place_form(const c10::OperatorHandle& op) {
  const std::string name = op.schema().name() + "_";
  if (!contains(initialisers, name)) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema({name, op.schema().overload_name()});
  if (!found || found->schema().arguments().size() != op.schema().arguments().size() || generator_argument(*found)) {
    return std::nullopt;
  }
  return found;
}

// The result of a copy, or of an operator that equals its in-place form on a copy; undefined when it has to be
// computed.
at::Tensor logged_result(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (op.schema().name() == "aten::clone") {
    const bool same_layout = arguments[1].isNone() || arguments[1].toMemoryFormat() == at::MemoryFormat::Preserve ||
                             self.is_contiguous(arguments[1].toMemoryFormat());
    return same_layout ? DeferredStorage::copy(self) : at::Tensor();
  }
  if (!at::isFloatingType(self.scalar_type())) return {};  // number arguments could change the type of integer tensors
  const auto in_place = in_place_form(op);
  if (!in_place) return {};
  at::Tensor result = DeferredStorage::copy(self);
  return result.defined() && DeferredStorage::log(*in_place, result, arguments, std::nullopt) ? result : at::Tensor();
}

bool fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const std::string_view name = op.schema().name();
  const std::span<const c10::IValue> arguments = arguments_of(op, *stack);
  if (name == "aten::empty" || name == "aten::empty_strided") {
    const bool strided = name == "aten::empty_strided";
    if (!in_scope() || (!strided && op.schema().overload_name() != "memory_format")) return false;
    at::Tensor made = made_without_memory(arguments, strided);
    if (!made.defined()) return false;
    return_instead(op, stack, std::move(made));
    return true;
  }
  if (contains(factories, name)) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, managed_key), stack);
    return true;
  }
  if (loggable(arguments)) {
    at::Tensor self = arguments[0].toTensor();
    if (!contains(initialisers, name)) {
      self = in_scope() ? logged_result(op, arguments) : at::Tensor();
    } else if (!DeferredStorage::log(op, self, arguments, generator_argument(op))) {
      self = at::Tensor();
    }
    if (self.defined()) {
      return_instead(op, stack, std::move(self));
      return true;
    }
  }
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [](const at::Tensor& tensor) {
      if (!is_managed(tensor)) return;
      DeferredStorage::materialize(tensor, /*replay=*/true);
      DeferredStorage::drop_key(tensor);
    });
  }
  return false;
}

}  // namespace

DeferredScope::DeferredScope() {
  static const bool registered = (set_deferred_fallback(&fallback), true);
  static_cast<void>(registered);
  outermost_ = !c10::impl::tls_is_dispatch_key_included(managed_key);
  if (outermost_) c10::impl::tls_set_dispatch_key_included(managed_key, true);
}

DeferredScope::~DeferredScope() {
  if (outermost_) c10::impl::tls_set_dispatch_key_included(managed_key, false);
}

bool is_deferred(const at::Tensor& tensor) { return DeferredStorage::has(tensor); }

void materialize(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!is_managed(tensor)) continue;
    DeferredStorage::materialize(tensor, /*replay=*/true);
    DeferredStorage::drop_key(tensor);
  }
}

void materialize_on(c10::Device device, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    materialize({tensor});
    if (tensor.device() != device) tensor.set_data(tensor.detach().to(device));
  }
}

void materialize_empty(const at::Tensor& tensor, c10::Device device) {
  if (!is_managed(tensor)) return;
  if (tensor.device() != device) {
    tensor.set_data(at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).device(device)));
    return;
  }
  DeferredStorage::materialize(tensor, /*replay=*/false);
  DeferredStorage::drop_key(tensor);
}

}  // namespace tessera::parallel
