#include <tessera/nn/device/groups.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <tessera/nn/autocast.h>
#include <tessera/nn/device/kernels.h>

#include <algorithm>

namespace tessera::nn {
namespace {

/// All weights as one tensor [E, out, in].
at::Tensor stacked(const std::vector<at::Tensor>& weights, at::ScalarType type) {
  const at::Tensor all = at::empty({static_cast<std::int64_t>(weights.size()), weights[0].size(0), weights[0].size(1)},
                                   weights[0].options().dtype(type));
  std::vector<at::Tensor> parts = all.unbind(0);
  at::_foreach_copy_(parts, weights);
  return all;
}

const float* floats(const at::Tensor& t) { return t.const_data_ptr<float>(); }

}  // namespace

std::optional<at::ScalarType> device_groups_type(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  if (!x.is_cuda() || weights.empty() || x.size(0) == 0 || weights[0].dim() != 2) return std::nullopt;
  const auto autocast = libtorch_autocast_type(x.device().type());
  const auto all_are = [&](at::ScalarType type) {
    return x.scalar_type() == type &&
           std::all_of(weights.begin(), weights.end(), [&](const at::Tensor& w) { return w.scalar_type() == type; });
  };
  if (!autocast && all_are(at::kFloat)) return at::kFloat;
  if (autocast ? *autocast != at::kBFloat16 : !all_are(at::kBFloat16)) return std::nullopt;
  constexpr std::int64_t aligned = 8;  // 16 bytes in bf16
  if (weights[0].size(0) % aligned != 0 || weights[0].size(1) % aligned != 0) return std::nullopt;
  const c10::DeviceGuard guard(x.device());
  return device_kernels({})->groups_products() ? std::optional(at::kBFloat16) : std::nullopt;
}

at::Tensor device_rows_of_groups(const at::Tensor& x, const at::Tensor& ends, const std::vector<at::Tensor>& weights,
                                 bool out_in) {
  const at::Tensor all = stacked(weights, x.scalar_type());
  if (x.scalar_type() != at::kFloat) return at::_grouped_mm(x, out_in ? all.transpose(1, 2) : all, ends);
  const std::int64_t rows = x.size(0), columns = all.size(out_in ? 1 : 2);
  const at::Tensor y = at::empty({rows, columns}, x.options());
  const c10::DeviceGuard guard(x.device());
  device_kernels({})->group_rows({.x = floats(x),
                                  .weights = floats(all),
                                  .ends = ends.const_data_ptr<std::int32_t>(),
                                  .y = y.mutable_data_ptr<float>(),
                                  .transposed = out_in},
                                 rows, x.size(1), columns, all.size(0));
  return y;
}

std::vector<at::Tensor> device_weights_of_groups(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& ends,
                                                 at::ScalarType type) {
  if (x.scalar_type() != at::kFloat) return at::_grouped_mm(dy.t(), x, ends).to(type).unbind(0);
  const at::Tensor sums = at::empty({ends.size(0), dy.size(1), x.size(1)}, x.options());
  const c10::DeviceGuard guard(x.device());
  device_kernels({})->group_sums({.left = floats(dy),
                                  .right = floats(x),
                                  .ends = ends.const_data_ptr<std::int32_t>(),
                                  .sums = sums.mutable_data_ptr<float>()},
                                 x.size(0), dy.size(1), x.size(1), ends.size(0));
  return sums.to(type).unbind(0);
}

}  // namespace tessera::nn
