#pragma once
/// \file
/// The arithmetic of Group::accumulate on one rank.

#include <ATen/core/Tensor.h>

#include <vector>

namespace tessera::comm {

/// accumulator [n] = ((accumulator + inputs[0]) + inputs[1]) + ..., strictly in this order. Inputs [n]: 1..64, of the
/// accumulator's dtype, or bf16/fp16 for an fp32 accumulator. Contiguous, on one device.
void fold(const at::Tensor& accumulator, const std::vector<at::Tensor>& inputs);

}  // namespace tessera::comm
