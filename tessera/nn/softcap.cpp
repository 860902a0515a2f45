#include <tessera/nn/softcap.h>

#include <ATen/ATen.h>

namespace tessera::nn {

at::Tensor softcap(const at::Tensor& x, double cap) { return cap == 0 ? x : at::tanh(x / cap) * cap; }

void softcap_(const at::Tensor& x, double cap) {
  if (cap != 0) x.div_(cap).tanh_().mul_(cap);
}

at::Tensor softcap_slope(const at::Tensor& capped, double cap) { return (capped / cap).square_().neg_().add_(1); }

}  // namespace tessera::nn
