// The optimizers' kernels for CUDA, in libtessera_cuda.so.
#include <c10/cuda/CUDAStream.h>

#include <tessera/kernels/cuda/adamw.h>
#include <tessera/optim/device_kernels.h>

namespace tessera::optim {
namespace {

void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const kernels::AdamwArgs& args) {
  kernels::cuda::adamw(p, g, m, v, n, args, c10::cuda::getCurrentCUDAStream().stream());
}

void add_exact_squares(std::span<const kernels::cuda::SquareRange> ranges, kernels::cuda::Real type,
                       std::int64_t* words) {
  kernels::cuda::add_exact_squares(ranges, type, words, c10::cuda::getCurrentCUDAStream().stream());
}

constexpr DeviceKernels table = {DeviceKernels::current_abi, &adamw, &add_exact_squares};

}  // namespace
}  // namespace tessera::optim

extern "C" const void* tessera_optimizer_kernels() { return &tessera::optim::table; }
