#include <tessera/nn/device/fp8.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

namespace tessera::nn {
namespace {

std::uint8_t* bytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::uint8_t*>(tensor.mutable_data_ptr()) : nullptr;
}

}  // namespace

DeviceFp8 device_fp8(const DeviceKernels& device, const DeviceFp8Cast& a) {
  const c10::DeviceGuard guard(a.x.device());
  const std::int64_t rows = a.x.size(0), columns = a.x.size(1), n = rows * columns;
  const auto eight = a.x.options().dtype(a.type), wide = a.x.options().dtype(at::kFloat);
  const DeviceFp8 out = {.values = a.straight ? at::empty({rows, columns}, eight) : at::Tensor(),
                         .turned = a.turned ? at::empty({columns, rows}, eight) : at::Tensor(),
                         .scale = at::empty({1, 1}, wide)};
  const at::Tensor parts = at::empty({kernels::cuda::fp8_parts(n)}, wide);
  float* const largest = parts.mutable_data_ptr<float>();
  device.fp8_largest(const_reals(a.x), a.chosen, largest, n);
  device.fp8_cast({.x = const_reals(a.x),
                   .type = a.type == at::kFloat8_e5m2 ? kernels::cuda::Fp8::e5m2 : kernels::cuda::Fp8::e4m3,
                   .most = static_cast<float>(a.most),
                   .chosen = a.chosen,
                   .parts = largest,
                   .values = bytes(out.values),
                   .turned = bytes(out.turned),
                   .scale = out.scale.mutable_data_ptr<float>(),
                   .noted = a.noted},
                  rows, columns);
  return out;
}

}  // namespace tessera::nn
