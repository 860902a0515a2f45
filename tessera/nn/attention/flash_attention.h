#pragma once
/// \file
/// nn/attention/: what nn/attention.h computes attention with.
///
/// This header: attention of whole heads without their matrix of scores, by kernels/cpu/attention/attention.h where
/// that can (fp32 on the CPU, D a multiple of 16, no mask), else by LibTorch's kernel for the CPU, with masks for
/// windows and lengths. Both keep the same for the backward.

#include <tessera/nn/attention/dropout_attention.h>

#include <utility>

namespace tessera::nn {

/// The rectangles have no softcap; their tensors may have any strides. Whether kernels of our own compute one, which
/// multiply little of what a window hides: other kernels are better given the pieces of attention_pieces.h.
bool flash_attention_is_ours(const AttentionRectangle& a);

/// {softmax(scale q k^T + mask) v [B, heads, n, D], which lies in memory as [B, n, heads, D]; the natural logarithms of
/// the sums over keys [B, heads, n], fp32 at least}.
std::pair<at::Tensor, at::Tensor> flash_attention(const AttentionRectangle& a);
/// Gradients of q, k and v from dy [B, heads, n, D], which lie in memory as [B, n or m, heads, D].
RectangleGradients flash_attention_backward(const at::Tensor& dy, const AttentionRectangle& a, const at::Tensor& out,
                                            const at::Tensor& log_sums);
/// The same into tensors of these shapes, of any strides.
void flash_attention_backward(const at::Tensor& dy, const AttentionRectangle& a, const at::Tensor& out,
                              const at::Tensor& log_sums, const RectangleGradients& places);

}  // namespace tessera::nn
