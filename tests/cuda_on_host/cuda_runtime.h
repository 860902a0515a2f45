#pragma once
/// \file
/// Replaces the CUDA toolkit's header of the same name when a .cu file is compiled for the host: the part of CUDA that
/// tessera/kernels/cuda uses, on the fibers of grid.h. Numbers are rounded as on a device (compile with
/// -ffp-contract=off). Atomics are plain operations, because fibers switch only at barriers. Shared memory belongs to
/// the calling thread, because several threads run grids at once.

#include <tests/cuda_on_host/grid.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <stdexcept>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

template <cuda_on_host::Dim3 cuda_on_host::Place::* which>
struct CudaIndices {
  struct X {
    operator unsigned() const { return (cuda_on_host::place().*which).x; }
  } x;
  struct Y {
    operator unsigned() const { return (cuda_on_host::place().*which).y; }
  } y;
  struct Z {
    operator unsigned() const { return (cuda_on_host::place().*which).z; }
  } z;
};
inline constexpr CudaIndices<&cuda_on_host::Place::thread_index> threadIdx{};
inline constexpr CudaIndices<&cuda_on_host::Place::block_index> blockIdx{};
inline constexpr CudaIndices<&cuda_on_host::Place::block> blockDim{};
inline constexpr CudaIndices<&cuda_on_host::Place::grid> gridDim{};

inline void __syncthreads(std::source_location at = std::source_location::current()) {
  cuda_on_host::block_barrier(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(at.line())));
}
inline void __syncwarp(unsigned = 0xffffffff, std::source_location at = std::source_location::current()) {
  cuda_on_host::warp_barrier(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(at.line())));
}

[[noreturn]] inline void __trap() { throw std::runtime_error("a kernel stopped the device"); }

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "an error of the host's CUDA"; }

// Copies are functions, so that UndefinedBehaviorSanitizer detects a misaligned address, which is an error on a device.
struct alignas(16) float4 {
  float x, y, z, w;
  float4(float x_, float y_, float z_, float w_) : x(x_), y(y_), z(z_), w(w_) {}
  float4(const float4& from) : float4(from.x, from.y, from.z, from.w) {}
  float4& operator=(const float4& from) {
    x = from.x, y = from.y, z = from.z, w = from.w;
    return *this;
  }
};
struct alignas(8) uint2 {
  unsigned x, y;
  uint2(unsigned x_, unsigned y_) : x(x_), y(y_) {}
  uint2(const uint2& from) : uint2(from.x, from.y) {}
  uint2& operator=(const uint2& from) {
    x = from.x, y = from.y;
    return *this;
  }
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

struct dim3 : cuda_on_host::Dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : cuda_on_host::Dim3{x_, y_, z_} {}
};

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<Parameters...> copies(static_cast<Parameters>(arguments)...);  // by value, as on a device
  cuda_on_host::run_grid(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                         [&] { std::apply(kernel, copies); });
  return cudaSuccess;
}

template <class Vector>
void __stwb(Vector* place, Vector value) {
  *place = value;
}

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float a) { return std::exp(a); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __longlong_as_double(long long a) {
  double value;
  std::memcpy(&value, &a, sizeof value);
  return value;
}
inline long long __double_as_longlong(double a) {
  long long bits;
  std::memcpy(&bits, &a, sizeof bits);
  return bits;
}
inline unsigned __float_as_uint(float a) {
  unsigned bits;
  std::memcpy(&bits, &a, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned a) {
  float value;
  std::memcpy(&value, &a, sizeof value);
  return value;
}

template <class Number>
Number exchanged(Number value, unsigned source) {
  static_assert(sizeof(Number) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const std::uint64_t other = cuda_on_host::exchange(bits, source);
  std::memcpy(&value, &other, sizeof value);
  return value;
}
template <class Number>
Number __shfl_sync(unsigned, Number value, unsigned source) {
  return exchanged(value, source % 32);
}
template <class Number>
Number __shfl_down_sync(unsigned, Number value, unsigned delta) {
  return exchanged(value, cuda_on_host::lane() + delta);
}
template <class Number>
Number __shfl_up_sync(unsigned, Number value, unsigned delta) {
  return exchanged(value, cuda_on_host::lane() - delta);
}
template <class Number>
Number __shfl_xor_sync(unsigned, Number value, unsigned mask) {
  return exchanged(value, cuda_on_host::lane() ^ mask);
}

template <class Number>
Number atomicAdd(Number* place, Number value) {
  const Number before = *place;
  *place = before + value;
  return before;
}
template <class Number>
Number atomicMax(Number* place, Number value) {
  const Number before = *place;
  if (before < value) *place = value;
  return before;
}

/// Byte k of the result is selected by nibble k of `which` from a's four bytes followed by b's.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (unsigned k = 0; k < 4; ++k) result |= static_cast<unsigned>(bytes >> 8 * (which >> 4 * k & 7U) & 0xffU) << 8 * k;
  return result;
}
