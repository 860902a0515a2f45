#include <tessera/nn/device/groups.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <tessera/nn/autocast.h>
#include <tessera/nn/device/kernels.h>

#include <algorithm>

namespace tessera::nn {
namespace {

/// All of them as one bf16 tensor [E, out, in].
at::Tensor stacked(const std::vector<at::Tensor>& weights) {
  const at::Tensor all = at::empty({static_cast<std::int64_t>(weights.size()), weights[0].size(0), weights[0].size(1)},
                                   weights[0].options().dtype(at::kBFloat16));
  std::vector<at::Tensor> parts = all.unbind(0);
  at::_foreach_copy_(parts, weights);
  return all;
}

}  // namespace

bool device_groups_products(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  if (!x.is_cuda() || weights.empty() || x.size(0) == 0) return false;
  const auto autocast = libtorch_autocast_type(x.device().type());
  const auto is_bf16 = [](const at::Tensor& t) { return t.scalar_type() == at::kBFloat16; };
  if (autocast ? *autocast != at::kBFloat16 : !is_bf16(x) || !std::all_of(weights.begin(), weights.end(), is_bf16))
    return false;
  constexpr std::int64_t aligned = 8;  // numbers of 16 bytes
  if (weights[0].dim() != 2 || weights[0].size(0) % aligned != 0 || weights[0].size(1) % aligned != 0) return false;
  const c10::DeviceGuard guard(x.device());
  return device_kernels({})->groups_products();
}

at::Tensor device_rows_of_groups(const at::Tensor& x, const at::Tensor& ends, const std::vector<at::Tensor>& weights,
                                 bool out_in) {
  const at::Tensor all = stacked(weights);
  return at::_grouped_mm(x, out_in ? all.transpose(1, 2) : all, ends);
}

std::vector<at::Tensor> device_weights_of_groups(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& ends,
                                                 at::ScalarType type) {
  return at::_grouped_mm(dy.t(), x, ends).to(type).unbind(0);
}

}  // namespace tessera::nn
