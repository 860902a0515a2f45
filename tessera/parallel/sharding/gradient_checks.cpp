#include <tessera/parallel/sharding/gradient_checks.h>

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/copy_finite.h>
#include <tessera/nn/parallel_for.h>

#include <atomic>
#include <cstdint>

namespace tessera::parallel {
namespace {

std::string describe(at::ScalarType dtype, c10::Device device, at::IntArrayRef sizes) {
  return concat(c10::toString(dtype), " ", sizes, " on ", device.str());
}

}  // namespace

void check_gradient(const std::string& name, const at::Tensor& grad, at::ScalarType dtype, c10::Device device,
                    at::IntArrayRef sizes) {
  if (grad.layout() != at::kStrided)
    throw Error(concat("data parallelism: the gradient of '", name,
                       "' is sparse; only dense gradients are reduced (Embedding: sparse = false)"));
  if (grad.scalar_type() != dtype || grad.device() != device || grad.sizes() != sizes)
    throw Error(concat("data parallelism: parameter '", name, "' was ", describe(dtype, device, sizes),
                       " when the module was wrapped, but its gradient is ",
                       describe(grad.scalar_type(), grad.device(), grad.sizes()),
                       "; convert or move the module before wrapping it"));
  if (grad.requires_grad())
    throw Error(concat("data parallelism: backward with create_graph = true; the reduced gradient of '", name,
                       "' has no graph (use torch::autograd::grad for the inner derivative)"));
}

bool copy_checked(const at::Tensor& to, const at::Tensor& from, bool check_finite) {
  // Contiguous tensors may differ in the strides of dimensions of size 1.
  const bool alike =
      to.sizes() == from.sizes() && ((to.strides() == from.strides() && to.is_non_overlapping_and_dense()) ||
                                     (to.is_contiguous() && from.is_contiguous()));
  if (check_finite && alike && to.is_cpu() && to.scalar_type() == at::kFloat && from.scalar_type() == at::kFloat) {
    float* const target = to.data_ptr<float>();
    const float* const source = from.const_data_ptr<float>();
    std::atomic<bool> finite = true;
    constexpr std::int64_t grain = 1 << 16;  // so that it runs on as many threads as copy_() would
    nn::parallel_for(0, from.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      if (!kernels::copy_finite(target + begin, source + begin, end - begin))
        finite.store(false, std::memory_order_relaxed);
    });
    return finite;
  }
  to.copy_(from);
  return true;
}

}  // namespace tessera::parallel
