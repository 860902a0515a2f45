// The table of nn/'s kernels on the double.
#include <tessera/nn/device/kernels.h>

#include <tests/double/launch.h>

namespace cuda_double {
namespace {

using tessera::nn::DeviceKernels;

constexpr DeviceKernels kernels = {DeviceKernels::current_abi};

}  // namespace
}  // namespace cuda_double

extern "C" const void* tessera_nn_kernels() { return &cuda_double::kernels; }
