// For operators without a kernel of their own on the double: runs the CPU's kernel on the mirrors of the arguments.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tests/double/mirrors.h>
#include <tests/double/operators.h>
#include <tests/double/products.h>
#include <tests/double/random.h>

#include <set>
#include <string>

namespace cuda_double {
namespace {

/// Operators whose result shape depends on values: CUDA's kernels wait for it.
bool waits_for_shape(const std::string& name) {
  static const std::set<std::string> names = {
      "aten::nonzero",    "aten::masked_select", "aten::_unique2", "aten::unique_consecutive",
      "aten::unique_dim", "aten::bincount",      "aten::equal",    "aten::repeat_interleave"};
  return names.contains(name);
}

/// Operators that accept index tensors on the host, which CUDA's kernels copy.
bool takes_host_tensors(const std::string& name) {
  static const std::set<std::string> names = {"aten::index",         "aten::index_put",
                                              "aten::index_put_",    "aten::_index_put_impl_",
                                              "aten::_unsafe_index", "aten::_unsafe_index_put"};
  return names.contains(name);
}

/// In-place operators that do not read the memory they overwrite.
bool only_writes(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::fill_", "aten::zero_", "aten::_foreach_zero_"};
  const std::string& name = op.schema().name();
  return names.contains(name) || (op.hasTag(at::Tag::nondeterministic_seeded) && name.back() == '_');
}

/// addmm_ and similar operators with beta 0 do not read the memory they overwrite.
bool ignores_self(const c10::OperatorHandle& op, const torch::jit::Stack& stack, std::size_t first) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "beta" && stack[first + i].isScalar()) {
      return stack[first + i].toScalar().toDouble() == 0;
    }
  }
  return false;
}

/// A kernel requests the data of everything it reads or writes; a released storage throws.
void check_present(const at::Tensor& tensor, const char* operation) {
  try {
    static_cast<void>(tensor.storage().data());
  } catch (const std::exception& error) {
    add_finding(Kind::not_here, std::string(operation) + ": " + error.what());
    throw;
  }
}

template <class Function>
void for_each_tensor(const c10::IValue& value, Function function) {
  if (value.isTensor()) {
    function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector()) function(t);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
      if (t) function(*t);
    }
  }
}

/// Applies `function` to each tensor in `value`.
template <class Function>
c10::IValue with_tensors(const c10::IValue& value, Function function) {
  if (value.isTensor()) return function(value.toTensor());
  if (value.isTensorList()) {
    std::vector<at::Tensor> list = value.toTensorVector();
    for (at::Tensor& t : list) t = function(t);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
      list.push_back(t ? std::optional<at::Tensor>(function(*t)) : std::nullopt);
    }
    return list;
  }
  return value;
}

/// One call of an operator.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        stack_(stack),
        arguments_(stack.size() - op.schema().arguments().size()),
        name_(kept(c10::toString(op.operator_name()))),
        device_(find_device()) {}

  void run() {
    const c10::DeviceGuard guard(device_);
    const BelowAutograd below;
    mirror_arguments();
    call_cpu();
    mirrors_.follow_resizes();
    for (std::size_t i = arguments_; i < stack_.size(); ++i) {
      stack_[i] = with_tensors(stack_[i], [&](const at::Tensor& t) { return mirrors_.back(t); });
    }
    for (const at::Tensor& t : written_) add_accesses(t, true, accesses_);  // after the call: out= may have grown
    for (const at::Tensor& t : mirrors_.made()) add_accesses(t, true, accesses_);
    if (!accesses_.empty()) start(name_, device_, accesses_);
    cost_.bytes = bytes_of(accesses_);
    count_operation(label_, cost_);
    const std::string& name = op_.schema().name();
    const auto stream = current_stream(device_.index());
    if (name == "aten::_local_scalar_dense") host_waits(Wait::item, name_, device_.index(), stream);
    if (waits_for_shape(name)) host_waits(Wait::shape, name_, device_.index(), stream);
  }

 private:
  /// The one device of all tensors; without tensors, the device argument or the current device.
  c10::Device find_device() const {
    std::optional<c10::Device> device;
    std::optional<c10::Device> other;
    const bool host_allowed = takes_host_tensors(op_.schema().name());
    for (std::size_t i = arguments_; i < stack_.size(); ++i) {
      for_each_tensor(stack_[i], [&](const at::Tensor& t) {
        if (!t.defined()) return;
        if (t.is_cuda() && !device) device = t.device();
        if (t.is_cuda() ? t.device() != *device : t.dim() > 0 && !host_allowed) other = t.device();
      });
    }
    if (device && other) {
      add_finding(Kind::mixed_devices,
                  std::string(name_) + " gets tensors on " + device->str() + " and on " + other->str());
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", *device,
                  " and ", *other, "! (", name_, ")");
    }
    for (std::size_t i = arguments_; i < stack_.size() && !device; ++i) {
      if (stack_[i].isDevice() && stack_[i].toDevice().is_cuda()) device = stack_[i].toDevice();
    }
    if (device && device->has_index()) return *device;
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(current_device())};
  }

  void mirror_arguments() {
    const auto& arguments = op_.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = stack_[arguments_ + i];
      const c10::Argument& argument = arguments[i];
      const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      const bool overwrites =
          writes && (argument.is_out() || (i == 0 && (only_writes(op_) || ignores_self(op_, stack_, arguments_))));
      // The argument of a view is an alias that is not read.
      const bool reads = argument.alias_info() == nullptr || (writes && !overwrites);
      value = with_tensors(value, [&](const at::Tensor& t) {
        if (!t.defined() || !t.is_cuda()) return t;
        if (reads || writes) check_present(t, name_);
        if (reads) add_accesses(t, false, accesses_);
        if (writes) written_.push_back(t);
        return mirrors_.of(t);
      });
      if (value.isDevice() && value.toDevice().is_cuda()) value = c10::Device(c10::kCPU);
      if (argument.name() == "pin_memory" && value.isBool()) value = false;
      if (value.isGenerator() || (argument.name() == "generator" && value.isNone())) {
        const at::Generator source = value.isNone() ? default_generator(device_.index()) : value.toGenerator();
        value = at::make_generator<at::CPUGeneratorImpl>(take_seed(source));
        seeded_ = true;
      }
    }
  }

  /// Counts a product's cost. true: its result, zeros, is already on the stack.
  bool skip_product() {
    const int first = first_matrix_of(op_.schema().name());
    if (first < 0) return false;
    const at::Tensor a = stack_[arguments_ + static_cast<std::size_t>(first)].toTensor(),
                     b = stack_[arguments_ + static_cast<std::size_t>(first) + 1].toTensor();
    cost_.flops = product_flops(a, b);
    label_ += std::string(" ") + c10::toString(a.scalar_type()) + (is_aligned(a) && is_aligned(b) ? "" : " unaligned");
    const bool scaled = op_.schema().name() == "aten::_scaled_mm";
    if (scaled) {
      const c10::ArrayRef<c10::IValue> arguments(stack_.data() + arguments_, stack_.size() - arguments_);
      check_scaled_product(arguments);
      if (arguments[7].toBool()) label_ += " fast";
    }
    if (!products_are_skipped()) return false;
    const c10::Argument& last = op_.schema().arguments().back();
    const bool in_place = op_.schema().name().ends_with('_');
    std::optional<std::int64_t> groups;
    if (op_.schema().name() == "aten::_grouped_mm") groups = stack_[arguments_ + 2].toTensor().size(0);
    const at::Tensor result = in_place        ? stack_[arguments_].toTensor().zero_()
                              : last.is_out() ? stack_.back().toTensor().resize_(zero_product(a, b).sizes()).zero_()
                                              : zero_product(a, b, groups, out_type());
    stack_.resize(arguments_);
    stack_.emplace_back(result);
    return true;
  }

  /// The argument out_dtype, if any.
  std::optional<at::ScalarType> out_type() const {
    const auto& arguments = op_.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const c10::IValue& value = stack_[arguments_ + i];
      if (arguments[i].name() == "out_dtype" && value.isInt()) return value.toScalarType();
    }
    return std::nullopt;
  }

  void call_cpu() {
    if (skip_product()) return;
    if (op_.operator_name().overload_name.starts_with("dtype") && first_matrix_of(op_.schema().name()) >= 0) {
      const c10::ArrayRef<c10::IValue> arguments(stack_.data() + arguments_, stack_.size() - arguments_);
      const at::Tensor result = wide_product(op_.schema().name(), arguments);
      stack_.resize(arguments_);
      stack_.emplace_back(result);
      return;
    }
    // A kernel that accepts no generator uses LibTorch's default CPU generator; for this call that generator gets the
    // device's state.
    const bool lend = op_.hasTag(at::Tag::nondeterministic_seeded) && !seeded_;
    at::Generator host = at::detail::getDefaultCPUGenerator();
    const at::Tensor former = lend ? host.get_state() : at::Tensor();
    if (lend) host.set_current_seed(take_seed(default_generator(device_.index())));
    try {
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    } catch (const c10::NotImplementedError&) {
      add_finding(Kind::no_kernel, std::string(name_) + " has no kernel of the CPU: the double needs one of its own");
      throw;
    }
    if (lend) host.set_state(former);
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::size_t arguments_;  // stack index of the first argument, then of the first result
  const char* name_;
  std::string label_ = name_;  // name in the table of operators
  Cost cost_;
  c10::Device device_;
  Mirrors mirrors_;
  std::vector<Access> accesses_;
  std::vector<at::Tensor> written_;
  bool seeded_ = false;  // a generator was among the arguments
};

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, *stack).run(); }

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>()); }

// An operator with its own CPU kernel nearly always also has its own CUDA kernel. Without this registration, one that
// also has a composite kernel would use the latter (native_layer_norm: seven operators instead of one, with different
// last bits).
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::string text = c10::toString(name);
    if (!text.starts_with("aten::") || has_own_kernel(text)) continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    // _grouped_mm has a CUDA kernel; the composite kernel of all other devices copies the offsets to the host.
    if (op && (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || text == "aten::_grouped_mm")) {
      m.impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&fall_back>());
    }
  }
}

}  // namespace cuda_double
