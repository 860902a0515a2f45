#include <tessera/nn/device/kernels.h>

#include <tessera/comm/backend_plugin.h>

namespace tessera::nn {
namespace {

kernels::cuda::Real type_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? kernels::cuda::Real::float32 : kernels::cuda::Real::bfloat16;
}

}  // namespace

const DeviceKernels* device_kernels(std::initializer_list<at::Tensor> tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& t : tensors) {
    if (!t.defined()) continue;
    if (first == nullptr) first = &t;
    if (!t.is_cuda() || t.layout() != at::kStrided) return nullptr;
    if (t.scalar_type() != at::kFloat && t.scalar_type() != at::kBFloat16) return nullptr;
    if (t.device() != first->device()) return nullptr;  // ATen's own operators will report the error
  }
  static const DeviceKernels& table = comm::plugin_table<DeviceKernels>("cuda");
  return &table;
}

kernels::cuda::ConstReals const_reals(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.const_data_ptr(), type_of(tensor)};
}

kernels::cuda::Reals reals(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.mutable_data_ptr(), type_of(tensor)};
}

}  // namespace tessera::nn
