#include <tessera/nn/device/norm.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <tessera/nn/autocast.h>

namespace tessera::nn {
namespace {

float* row_of(const at::Tensor& statistics, std::int64_t row) {
  return statistics.mutable_data_ptr<float>() + row * statistics.size(1);
}

}  // namespace

at::ScalarType sum_type(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& delta_bias) {
  at::ScalarType type = x.scalar_type();
  for (const at::Tensor* const t : {&delta, &delta_bias})
    if (t->defined()) type = at::promote_types(type, t->scalar_type());
  return type;
}

at::ScalarType stored_type(NormReaders readers, at::ScalarType plain) {
  const bool rounds = readers == NormReaders::linear_maps && libtorch_autocast_type(at::kCUDA) == at::kBFloat16;
  return rounds ? at::kBFloat16 : plain;
}

DeviceNormed device_norm(const DeviceKernels& device, const DeviceNorm& a) {
  const c10::DeviceGuard guard(a.x.device());
  const std::int64_t columns = a.x.size(-1), rows = a.x.numel() / columns;
  const at::ScalarType type = sum_type(a.x, a.delta, a.delta_bias);
  const DeviceNormed out = {.sum = a.delta.defined() ? at::empty(a.x.sizes(), a.x.options().dtype(type)) : a.x,
                            .normed = at::empty(a.x.sizes(), a.x.options().dtype(a.normed_type)),
                            .statistics = at::empty({a.centred ? 2 : 1, rows}, a.x.options().dtype(at::kFloat))};
  device.norm({.x = const_reals(a.x),
               .delta = const_reals(a.delta),
               .delta_bias = const_reals(a.delta_bias),
               .weight = const_reals(a.weight),
               .bias = const_reals(a.bias),
               .eps = a.eps,
               .sum = a.delta.defined() ? reals(out.sum) : kernels::cuda::Reals{},
               .y = reals(out.normed),
               .mean = a.centred ? row_of(out.statistics, 0) : nullptr,
               .rstd = row_of(out.statistics, a.centred ? 1 : 0)},
              rows, columns);
  return out;
}

DeviceNormGradients device_norm_backward(const DeviceKernels& device, const DeviceNormBackward& a) {
  const c10::DeviceGuard guard(a.sum.device());
  const std::int64_t columns = a.sum.size(-1), rows = a.sum.numel() / columns;
  const bool centred = a.statistics.size(0) == 2;
  const auto made = [&](GradientType type, at::IntArrayRef sizes) {
    return type ? at::empty(sizes, a.sum.options().dtype(*type)) : at::Tensor();
  };
  DeviceNormGradients out;
  out.x = made(a.x, a.sum.sizes());
  if (a.delta != a.x) out.delta = made(a.delta, a.sum.sizes());
  out.delta_bias = made(a.delta_bias, columns);
  out.weight = made(a.weights, columns);
  out.bias = made(a.bias, columns);
  const bool sums = a.delta_bias || a.weights || a.bias;
  const at::Tensor partial =
      sums ? at::empty({device.norm_partial_sums(centred, rows, columns)}, a.sum.options().dtype(at::kFloat))
           : at::Tensor();
  device.norm_backward({.sum = const_reals(a.sum),
                        .dy = const_reals(a.dy),
                        .dsum = const_reals(a.dsum),
                        .weight = const_reals(a.weight),
                        .mean = centred ? row_of(a.statistics, 0) : nullptr,
                        .rstd = row_of(a.statistics, centred ? 1 : 0),
                        .dx = reals(out.x),
                        .ddelta = reals(out.delta),
                        .dweight = reals(out.weight),
                        .dbias = reals(out.bias),
                        .ddelta_bias = reals(out.delta_bias),
                        .partial = sums ? partial.mutable_data_ptr<float>() : nullptr},
                       rows, columns);
  if (a.delta == a.x) out.delta = out.x;
  return out;
}

}  // namespace tessera::nn
