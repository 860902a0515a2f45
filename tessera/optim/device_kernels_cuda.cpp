// The optimizers' kernels for CUDA, in libtessera_cuda.so.
#include <c10/cuda/CUDAStream.h>

#include <tessera/optim/device_kernels.h>

namespace tessera::optim {
namespace {

/// Calls a kernel of kernels/cuda, whose last argument is the stream, on the current stream.
template <auto kernel, class... Arguments>
void on_current_stream(Arguments... arguments) {
  kernel(arguments..., c10::cuda::getCurrentCUDAStream().stream());
}

constexpr DeviceKernels table = {DeviceKernels::current_abi,
                                 &on_current_stream<&kernels::cuda::adamw>,
                                 &on_current_stream<&kernels::cuda::adamw_bf16>,
                                 &on_current_stream<&kernels::cuda::round_to_bf16>,
                                 &on_current_stream<&kernels::cuda::add_exact_squares>,
                                 &on_current_stream<&kernels::cuda::carry_words>,
                                 &on_current_stream<&kernels::cuda::form_step_scalars>};

}  // namespace
}  // namespace tessera::optim

extern "C" const void* tessera_optimizer_kernels() { return &tessera::optim::table; }
