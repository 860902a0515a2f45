#pragma once
/// \file
/// kernels/cuda/: raw-pointer kernels for NVIDIA GPUs, compiled by nvcc into the plug-in. This header: AdamW over many
/// parameters.

#include <tessera/kernels/cpu/adamw.h>
#include <tessera/kernels/cuda/step_scalars.h>

#include <cstdint>
#include <span>

namespace tessera::kernels::cuda {

/// A parameter or a piece of one: n elements each of parameter, gradient and averages, on the device.
struct AdamwRange {
  float* p;
  const float* g;
  float *m, *v;
  std::int64_t n;
  AdamwArgs args;
};
/// The same with averages in bfloat16.
struct AdamwBf16Range {
  float* p;
  const float* g;
  std::uint16_t *m, *v;
  std::int64_t n;
  AdamwArgs args;
  Bf16Rounding rounding;
};

/// Applies kernels::adamw (kernels/cpu/adamw.h: the formula and its source) to every range, on `stream` (a
/// cudaStream_t); returns before the work is done. With `scalars` (on the device), also multiplies gradients by its
/// factor, and changes nothing if its `skip` is set; null: does neither. Throws std::runtime_error with CUDA's message
/// when a launch fails.
void adamw(std::span<const AdamwRange> ranges, const StepScalars* scalars, void* stream);
/// Like kernels::adamw_bf16; otherwise as above. Results of both are bitwise the same as on a CPU with fused
/// multiply-add (AVX2, NEON).
void adamw_bf16(std::span<const AdamwBf16Range> ranges, const StepScalars* scalars, void* stream);

}  // namespace tessera::kernels::cuda
