#include <tessera/nn/gemm.h>

#include <ATen/ATen.h>

#include <tessera/kernels/cpu/dispatch.h>
#include <tessera/nn/product_watch.h>

namespace at::native {
/// Exported by libtorch_cpu.so 2.11.0, but declared in a header that the wheel does not contain
/// (aten/src/ATen/native/mkldnn/Matmul.h): result = beta * result + alpha * mat1 mat2.
void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}  // namespace at::native

namespace tessera::nn {

bool multiplies_with_onednn() {
  static const bool chosen =
      kernels::isa() == kernels::Isa::avx512 && !kernels::made_by_intel() && at::globalContext().userEnabledMkldnn();
  return chosen;
}

void multiply(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  if (multiplies_with_onednn()) {
    if (ProductWatcher* const watcher = product_watcher.load(std::memory_order_acquire)) [[unlikely]]
      watcher->product(a.size(0), b.size(1), a.size(1), 4, &a, &b);
    return at::native::mkldnn_matmul(a, b, out, accumulate ? 1 : 0, 1);
  }
  at::Tensor result = out;
  if (accumulate)
    at::addmm_out(result, out, a, b);
  else
    at::mm_out(result, a, b);
}

bool has_instructions(at::ScalarType half) {
  return half == at::kBFloat16 ? kernels::has_bf16_instructions() : kernels::has_fp16_instructions();
}

void multiply_half(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  // oneDNN multiplies in bf16 and fp16 on every CPU with instructions for them. On others LibTorch's product is a plain
  // loop, a hundred times slower than an fp32 product. The latter gives the same sums, because products of two such
  // numbers are exact in fp32.
  if (a.is_cpu() && !has_instructions(a.scalar_type())) {
    const at::Tensor sum = at::empty(out.sizes(), out.options());
    multiply(sum, a.to(at::kFloat), b.to(at::kFloat));
    const at::Tensor rounded = sum.to(a.scalar_type());
    accumulate ? out.add_(rounded) : out.copy_(rounded);
    return;
  }
  at::Tensor rounded = at::empty(out.sizes(), a.options());
  at::mm_out(rounded, a, b);
  if (accumulate)
    out.add_(rounded);
  else
    out.copy_(rounded);
}

}  // namespace tessera::nn
