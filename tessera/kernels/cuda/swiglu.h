#pragma once
/// \file
/// The gated activation of the Llama family, forward and backward: kernels::swiglu (see kernels/cpu/swiglu.h for the
/// formulas) on a device, with elements of either type.
///
/// All arrays have n contiguous elements. Functions return before the work is done, on `stream` (a cudaStream_t), and
/// throw std::runtime_error with CUDA's message when a launch fails. Four elements are read at a time if n and all
/// pointers allow it. If the gate is bfloat16, exp and the division use the device's fast versions, whose error is far
/// below the rounding error of bfloat16.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// y = silu(gate) * up; y may be gate or up if it has the same type.
void swiglu(ConstReals gate, ConstReals up, Reals y, std::int64_t n, void* stream);

/// dgate = dy * up * silu'(gate), dup = dy * silu(gate); each may be an input of the same type.
struct SwigluBackward {
  ConstReals gate = {}, up = {}, dy = {};
  Reals dgate = {}, dup = {};
};
void swiglu_backward(const SwigluBackward& a, std::int64_t n, void* stream);

}  // namespace tessera::kernels::cuda
