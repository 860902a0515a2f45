#pragma once
/// \file
/// nn/recurrent/: layers that read a sequence through a memory of constant size. This header: the gated delta rule
/// (Yang et al. 2025, "Gated Delta Networks", eq. 10), whose memory is one matrix per head.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// S_0 = 0, and for each token
///   S_t = exp(d_t) S_(t-1) + s_t k_t (v_t - (exp(d_t) S_(t-1))^T k_t)^T,   y_t = S_t^T q_t / sqrt(K).
/// q and k [B, T, H, K] (of unit length), v [B, T, H, V], the logarithms d of the decays and the strengths s of the
/// writes [B, T, H] -> y [B, T, H, V], in fp32 for any input types. Computed in pieces of 64 tokens, whose inner
/// dependence is one triangular system (Yang et al. 2024, "DeltaNet", section 3.2); differentiable, with autograd's
/// memory: about 10 tensors of v's size and one of 64 numbers per token and head.
at::Tensor gated_delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decays,
                            const at::Tensor& strengths);

}  // namespace tessera::nn
