#pragma once
/// \file
/// nn/attention/: implementations behind nn/attention.h.
///
/// This header: attention of whole heads without their matrix of scores, by kernels/cpu/attention/attention.h if it
/// supports the case (fp32 on the CPU, D a multiple of 16, no mask), else by LibTorch's CPU kernel, with masks for
/// windows and lengths. Both save the same tensors for backward.

#include <tessera/nn/attention/dropout_attention.h>

#include <utility>

namespace tessera::nn {

/// The rectangles have no softcap; their tensors may have any strides. Whether our own kernels compute this rectangle.
/// They skip most keys outside of a window; for other kernels the pieces of attention_pieces.h are better.
bool flash_attention_is_ours(const AttentionRectangle& a);

/// {softmax(scale q k^T + mask) v [B, heads, n, D], stored as [B, n, heads, D]; the natural logarithms of the sums over
/// keys [B, heads, n], in fp32 or wider}.
std::pair<at::Tensor, at::Tensor> flash_attention(const AttentionRectangle& a);
/// Gradients of q, k and v from dy [B, heads, n, D], stored as [B, n or m, heads, D].
RectangleGradients flash_attention_backward(const at::Tensor& dy, const AttentionRectangle& a, const at::Tensor& out,
                                            const at::Tensor& log_sums);
/// The same, written into tensors of these shapes with any strides.
void flash_attention_backward(const at::Tensor& dy, const AttentionRectangle& a, const at::Tensor& out,
                              const at::Tensor& log_sums, const RectangleGradients& places);

}  // namespace tessera::nn
