#pragma once
/// \file
/// Attention within documents and windows on a CUDA device, by LibTorch's flash kernel for rows of different lengths.

#include <ATen/core/Tensor.h>

#include <tessera/nn/documents.h>

namespace tessera::nn {

/// Whether document_attention() takes these: bf16 or fp16 (also by autocast) on a CUDA device, D a multiple of 8 up to
/// 256, and flash kernels not switched off in LibTorch. They need compute capability 8.0, as our own kernels do.
bool document_attention_takes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

/// nn::attention() without softcap and dropout, in the type of autocast or of q. q [B, T, heads, D]; k, v [B, T, key
/// heads, D], which are not copied for groups. window 0: none. Costs what the documents and the window contain; the
/// host does not wait. Returns [B, T, heads * D]. Differentiable.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentStarts& documents, double scale, std::int64_t window);

}  // namespace tessera::nn
