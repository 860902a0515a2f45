#include <tessera/xla/capture/shapes.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <tessera/base/error.h>

namespace tessera::xla {
namespace {

using Stack = std::vector<c10::IValue>;

/// Makes a placeholder for a tensor argument.
using StandIn = at::Tensor (*)(const at::Tensor&);

at::Tensor keep_wrapped(const at::Tensor& from, at::Tensor to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) to.unsafeGetTensorImpl()->set_wrapped_number(true);
  return to;
}
at::Tensor on_meta(const at::Tensor& tensor) {
  return keep_wrapped(tensor, at::empty_strided(tensor.sizes(), tensor.strides(),
                                                at::TensorOptions(at::kMeta).dtype(tensor.scalar_type())));
}
/// Zeros that share the memory of one element.
at::Tensor zeros(const at::Tensor& tensor) {
  return keep_wrapped(tensor, at::zeros({}, tensor.scalar_type()).expand(tensor.sizes()));
}

c10::IValue replaced(const c10::IValue& value, StandIn stand_in, c10::DeviceType device) {
  if (value.isTensor()) return value.toTensor().defined() ? stand_in(value.toTensor()) : value.toTensor();
  if (value.isDevice()) return c10::Device(device);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& item : value.toListRef()) list.push_back(stand_in(item.toTensor()));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& item : value.toListRef())
      list.push_back(item.isTensor() ? std::optional(stand_in(item.toTensor())) : std::nullopt);
    return list;
  }
  return value;
}
Stack call_with(const c10::OperatorHandle& op, const Stack& arguments, StandIn stand_in, c10::DeviceType device) {
  Stack stack;
  for (const c10::IValue& argument : arguments) stack.push_back(replaced(argument, stand_in, device));
  op.callBoxed(&stack);
  return stack;
}

at::Tensor empty_meta(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(type));
}

/// Rules for operators whose meta kernel LibTorch 2.11 registers only from Python.
std::optional<Stack> own_rule(const std::string& name, const Stack& arguments) {
  if (name == "aten::native_layer_norm") {
    const at::Tensor& x = arguments[0].toTensor();
    const std::size_t normalized = arguments[1].toIntVector().size();
    std::vector<std::int64_t> rows = x.sizes().vec();
    for (std::size_t i = rows.size() - normalized; i < rows.size(); ++i) rows[i] = 1;
    return Stack{empty_meta(x.sizes(), x.scalar_type()), empty_meta(rows, at::kFloat), empty_meta(rows, at::kFloat)};
  }
  if (name == "aten::native_layer_norm_backward") {
    const auto mask = arguments[7].toBoolList();
    Stack results;
    for (const auto& [wanted, argument] : {std::pair{mask.get(0), 1}, {mask.get(1), 5}, {mask.get(2), 6}}) {
      const c10::IValue& like = arguments[static_cast<std::size_t>(argument)];
      results.emplace_back(wanted && like.isTensor() && like.toTensor().defined()
                               ? empty_meta(like.toTensor().sizes(), like.toTensor().scalar_type())
                               : at::Tensor());
    }
    return results;
  }
  if (name == "aten::_safe_softmax") {
    const at::Tensor& x = arguments[0].toTensor();
    return Stack{empty_meta(x.sizes(), arguments[2].isNone() ? x.scalar_type() : arguments[2].toScalarType())};
  }
  if (name == "aten::embedding") {
    std::vector<std::int64_t> sizes = arguments[1].toTensor().sizes().vec();
    sizes.push_back(arguments[0].toTensor().size(1));
    return Stack{empty_meta(sizes, arguments[0].toTensor().scalar_type())};
  }
  if (name == "aten::embedding_dense_backward") {
    const at::Tensor& dy = arguments[0].toTensor();
    return Stack{empty_meta({arguments[2].toInt(), dy.size(-1)}, dy.scalar_type())};
  }
  return std::nullopt;
}

}  // namespace

Stack shapes_of(const c10::OperatorHandle& op, const Stack& arguments) {
  if (std::optional<Stack> results = own_rule(op.operator_name().name, arguments)) return std::move(*results);
  const at::AutoDispatchBelowADInplaceOrView plain;
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  try {
    return call_with(op, arguments, &on_meta, at::kMeta);
  } catch (const c10::NotImplementedError&) {  // some operators, such as where(), have no such kernel
    return call_with(op, arguments, &zeros, at::kCPU);
  }
}

at::Tensor without_memory(const at::Tensor& meta) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), meta.storage().nbytes(),
                                                       at::DataPtr(nullptr, at::kCPU),
                                                       /*allocator=*/nullptr, /*resizable=*/false);
  storage->set_throw_on_mutable_data_ptr();
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "the step cannot be captured: code that is not a LibTorch operator reads the data of a tensor that has none "
      "while "
      "a step is captured");
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), meta.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides(), meta.storage_offset());
  return tensor;
}

}  // namespace tessera::xla
