// The kernels of nn/ for CUDA, in libtessera_cuda.so.
#include <tessera/nn/device/kernels.h>

#include <c10/cuda/CUDAStream.h>

namespace tessera::nn {
namespace {

/// A kernel of kernels/cuda, whose last argument is the stream, on the current one.
template <auto kernel, class... Arguments>
void on_current_stream(Arguments... arguments) {
  kernel(arguments..., c10::cuda::getCurrentCUDAStream().stream());
}

constexpr DeviceKernels table = {
    .abi = DeviceKernels::current_abi,
    .dropout = &on_current_stream<&kernels::cuda::dropout>,
    .uniform = &on_current_stream<&kernels::cuda::uniform>,
    .softmax_cross_entropy = &on_current_stream<&kernels::cuda::softmax_cross_entropy>,
};

}  // namespace
}  // namespace tessera::nn

extern "C" const void* tessera_nn_kernels() { return &tessera::nn::table; }
