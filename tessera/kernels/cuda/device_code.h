#pragma once
/// \file
/// Shared by the .cu files, and included only by them: elements of either type as floats, and launches.

#include <tessera/kernels/cuda/reals.h>

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tessera::kernels::cuda {

/// bfloat16 is the upper half of a float.
__device__ inline float widened(unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
/// Rounds to nearest, ties to even; NaN stays NaN.
__device__ inline unsigned short narrowed(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<unsigned short>(bits >> 16 | 0x40U);
  return static_cast<unsigned short>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

/// Reads element i, for a type known at compile time; bfloat16 is an unsigned short.
__device__ inline float element(const float* x, std::int64_t i) { return x[i]; }
__device__ inline float element(const unsigned short* x, std::int64_t i) { return widened(x[i]); }
__device__ inline void put(float* y, std::int64_t i, float value) { y[i] = value; }
__device__ inline void put(unsigned short* y, std::int64_t i, float value) { y[i] = narrowed(value); }

// The branch on the type is uniform over a whole grid, so its cost is negligible compared with the memory access.
__device__ inline float load(ConstReals x, std::int64_t i) {
  return x.type == Real::float32 ? element(static_cast<const float*>(x.data), i)
                                 : element(static_cast<const unsigned short*>(x.data), i);
}
__device__ inline void store(Reals y, std::int64_t i, float value) {
  if (y.type == Real::float32) {
    put(static_cast<float*>(y.data), i, value);
  } else {
    put(static_cast<unsigned short*>(y.data), i, value);
  }
}

/// 1 / (1 + exp(-z)). `fast`: accurate to about seven digits if |z| is small, and to fewer if the result is close to 0.
template <bool fast>
__device__ inline float logistic(float z) {
  if constexpr (fast) return __fdividef(1, 1 + __expf(-z));
  return 1 / (1 + expf(-z));
}

/// Writes four elements in one access. A plain assignment through a pointer may become four accesses, each of which
/// would write every sector that the warp writes.
__device__ inline void put_four(float* y, float4 four) { __stwb(reinterpret_cast<float4*>(y), four); }
__device__ inline void put_four(unsigned short* y, uint2 four) { __stwb(reinterpret_cast<uint2*>(y), four); }

/// Adjacent elements of one thread: one, or four in one access.
template <int width>
__device__ inline void load(ConstReals x, std::int64_t i, float (&to)[width]) {
  static_assert(width == 1 || width == 4);
  if constexpr (width == 1) {
    to[0] = load(x, i);
  } else if (x.type == Real::float32) {
    const float4 four = *reinterpret_cast<const float4*>(static_cast<const float*>(x.data) + i);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  } else {
    const uint2 four = *reinterpret_cast<const uint2*>(static_cast<const unsigned short*>(x.data) + i);
    to[0] = __uint_as_float(four.x << 16), to[1] = __uint_as_float(four.x & 0xffff0000U);
    to[2] = __uint_as_float(four.y << 16), to[3] = __uint_as_float(four.y & 0xffff0000U);
  }
}
template <int width>
__device__ inline void store(Reals y, std::int64_t i, const float (&from)[width]) {
  static_assert(width == 1 || width == 4);
  if constexpr (width == 1) {
    store(y, i, from[0]);
  } else if (y.type == Real::float32) {
    put_four(static_cast<float*>(y.data) + i, make_float4(from[0], from[1], from[2], from[3]));
  } else {
    put_four(static_cast<unsigned short*>(y.data) + i,
             make_uint2(narrowed(from[0]) | static_cast<unsigned>(narrowed(from[1])) << 16,
                        narrowed(from[2]) | static_cast<unsigned>(narrowed(from[3])) << 16));
  }
}
/// The value of a number after it is stored as `type`.
__device__ inline float rounded(float x, Real type) { return type == Real::float32 ? x : widened(narrowed(x)); }

/// Whether elements can be read and written four at a time, at every index that is a multiple of 4.
template <class... Numbers>
bool in_fours(std::int64_t columns, const Numbers&... all) {
  const auto aligned = [](const void* data, Real type) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(4 * bytes_of(type)) == 0;
  };
  return columns % 4 == 0 && (aligned(all.data, all.type) && ...);
}

/// x for reading.
__host__ __device__ inline ConstReals seen(Reals x) { return {x.data, x.type}; }
__host__ __device__ inline ConstReals seen(const float* x) { return {x, Real::float32}; }

constexpr unsigned warp_size = 32;
constexpr unsigned whole_warps(std::int64_t threads, unsigned most) {
  const std::int64_t whole = (threads + warp_size - 1) / warp_size * warp_size;
  return whole < warp_size ? warp_size : whole < most ? static_cast<unsigned>(whole) : most;
}

/// Launches `kernel` on `stream` (a cudaStream_t). Throws std::runtime_error with `name` and CUDA's message.
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
