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

namespace cuda = kernels::cuda;

constexpr DeviceKernels table = {
    DeviceKernels::current_abi,
    &on_current_stream<cuda::norm>,
    &on_current_stream<cuda::norm_backward>,
    &cuda::norm_partial_sums,
    &on_current_stream<cuda::add_residual>,
    &on_current_stream<cuda::add_residual_backward>,
    &cuda::residual_partial_sums,
    &on_current_stream<cuda::gelu_tanh>,
    &on_current_stream<cuda::gelu_tanh_backward>,
    &cuda::gelu_partial_sums,
    &on_current_stream<cuda::swiglu>,
    &on_current_stream<cuda::swiglu_backward>,
    &on_current_stream<cuda::rotary>,
};

}  // namespace
}  // namespace tessera::nn

extern "C" const void* tessera_nn_kernels() { return &tessera::nn::table; }
