#pragma once
/// \file
/// kernels/cuda/: raw-pointer kernels for NVIDIA GPUs, compiled by nvcc into the plug-in. This header: AdamW over many
/// parameters.

#include <tessera/kernels/cpu/adamw.h>
#include <tessera/kernels/cuda/step_scalars.h>

#include <cstdint>
#include <span>

namespace tessera::kernels::cuda {

/// One parameter, or a piece of one: n elements each of parameter, gradient and averages, on the device.
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

/// kernels::adamw (kernels/cpu/adamw.h: the formula and its source) on every range, in the order of `stream` (a
/// cudaStream_t); returns before it is done. `scalars`, on the device: gradients are multiplied by its factor, too, and
/// nothing changes where it says skip; null: neither. Throws std::runtime_error with CUDA's words when a launch fails.
void adamw(std::span<const AdamwRange> ranges, const StepScalars* scalars, void* stream);
/// kernels::adamw_bf16; everything else as above. Both have the bits of a CPU that fuses multiplications (AVX2, NEON).
void adamw_bf16(std::span<const AdamwBf16Range> ranges, const StepScalars* scalars, void* stream);

}  // namespace tessera::kernels::cuda
