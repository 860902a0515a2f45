#pragma once
/// \file
/// The arithmetic of an operator, from the sizes of its tensors.

#include <tessera/parallel/recorder/operator_recorder.h>
#include <tessera/plan/recorded.h>

namespace tessera::parallel {

/// Matrix products (convolutions count as the equivalent products) and fused attention. Every other operator counts as
/// 0 FLOP and as reading and writing the bytes of its tensors. Sources: a product of [m, k] by [k, n] is 2 m n k FLOP;
/// attention is 4 per query, key and width, its backward 8 (Chowdhery et al. 2022, appendix B: causal attention in
/// full, recomputed scores not counted).
plan::RecordedWork work_of(const SeenOperator& seen);
/// Adds attention of q [B, heads, n, D] to k [B, heads, m, D], or its backward; `seen`: average number of keys that a
/// query attends to.
void add_attention(plan::RecordedWork& work, const at::Tensor& q, const at::Tensor& k, bool causal, double seen,
                   bool backward);

/// All tensors among the values, including those in lists.
std::vector<at::Tensor> tensors_among(std::span<const c10::IValue> values);

}  // namespace tessera::parallel
