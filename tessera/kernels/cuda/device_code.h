#pragma once
/// \file
/// What the .cu files share: elements of either type as floats, and launches. Only they include it.

#include <tessera/kernels/cuda/reals.h>

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tessera::kernels::cuda {

/// bfloat16 is the upper half of a float.
__device__ inline float widened(unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
/// To nearest, ties to even; NaN stays NaN.
__device__ inline unsigned short narrowed(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<unsigned short>(bits >> 16 | 0x40U);
  return static_cast<unsigned short>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// The branch on the type is the same for a whole grid, so it costs nothing beside the access to memory.
__device__ inline float load(ConstReals x, std::int64_t i) {
  return x.type == Real::float32 ? static_cast<const float*>(x.data)[i]
                                 : widened(static_cast<const unsigned short*>(x.data)[i]);
}
__device__ inline void store(Reals y, std::int64_t i, float value) {
  if (y.type == Real::float32) {
    static_cast<float*>(y.data)[i] = value;
  } else {
    static_cast<unsigned short*>(y.data)[i] = narrowed(value);
  }
}

/// Launches `kernel` on `stream` (a cudaStream_t). Throws std::runtime_error with `name` and CUDA's words.
template <class... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            void* stream, Parameters... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  if (const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...); error != cudaSuccess)
    throw std::runtime_error("[cuda " + std::string(name) + "] launch failed: " + cudaGetErrorString(error));
}

}  // namespace tessera::kernels::cuda
