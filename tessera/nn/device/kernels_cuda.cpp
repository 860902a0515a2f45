// The CUDA kernels of nn/, in libtessera_cuda.so.
#include <tessera/nn/device/kernels.h>

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAStream.h>

namespace tessera::nn {
namespace {

/// Calls a kernel of kernels/cuda, whose last argument is the stream, on the current stream.
template <auto kernel, class... Arguments>
void on_current_stream(Arguments... arguments) {
  kernel(arguments..., c10::cuda::getCurrentCUDAStream().stream());
}

namespace cuda = kernels::cuda;

/// at::_grouped_mm has a kernel for Hopper and Blackwell (SM100); on other devices it copies the offsets to the host
/// and loops.
bool groups_products() {
  const int major = at::cuda::getCurrentDeviceProperties()->major;
  return major == 9 || major == 10;
}

constexpr DeviceKernels table = {
    .abi = DeviceKernels::current_abi,
    .dropout = &on_current_stream<cuda::dropout>,
    .uniform = &on_current_stream<cuda::uniform>,
    .softmax_cross_entropy = &on_current_stream<cuda::softmax_cross_entropy>,
    .multiply_unless_one = &on_current_stream<cuda::multiply_unless_one>,
    .embedded_sum = &on_current_stream<cuda::embedded_sum>,
    .norm = &on_current_stream<cuda::norm>,
    .norm_backward = &on_current_stream<cuda::norm_backward>,
    .norm_partial_sums = &cuda::norm_partial_sums,
    .add_residual = &on_current_stream<cuda::add_residual>,
    .add_residual_backward = &on_current_stream<cuda::add_residual_backward>,
    .residual_partial_sums = &cuda::residual_partial_sums,
    .gelu_tanh = &on_current_stream<cuda::gelu_tanh>,
    .gelu_tanh_backward = &on_current_stream<cuda::gelu_tanh_backward>,
    .gelu_partial_sums = &cuda::gelu_partial_sums,
    .swiglu = &on_current_stream<cuda::swiglu>,
    .swiglu_backward = &on_current_stream<cuda::swiglu_backward>,
    .rotary = &on_current_stream<cuda::rotary>,
    .join_columns = &on_current_stream<cuda::join_columns>,
    .joined_partial_sums = &cuda::joined_partial_sums,
    .sort_slots = &on_current_stream<cuda::sort_slots>,
    .groups_products = &groups_products,
    .group_rows = &on_current_stream<cuda::group_rows>,
    .group_sums = &on_current_stream<cuda::group_sums>,
    .fp8_largest = &on_current_stream<cuda::fp8_largest>,
    .fp8_cast = &on_current_stream<cuda::fp8_cast>,
};

}  // namespace
}  // namespace tessera::nn

extern "C" const void* tessera_nn_kernels() { return &tessera::nn::table; }
