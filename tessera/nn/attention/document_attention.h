#pragma once
/// \file
/// Attention in bf16 and fp16 on a CUDA device by those LibTorch kernels that need neither masks nor copies: the flash
/// kernel for rows of different lengths (documents, windows), and kernels that support groups of query heads.

#include <ATen/core/Tensor.h>

#include <tessera/nn/documents.h>

#include <cstdint>
#include <optional>

namespace tessera::nn {

/// Whether document_attention() supports the arguments: bf16 or fp16 (also by autocast) on a CUDA device, D a multiple
/// of 8 up to 256, at most 65,535 documents or rows (a grid's limit), at most 1,024 documents or an average document of
/// at least 16 tokens (backward needs 128 x heads x D fp32 numbers for each), and flash kernels enabled in LibTorch.
/// They need compute capability 8.0, as our own kernels do.
bool document_attention_takes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentStarts& documents);

/// nn::attention() without softcap and dropout, in the type of autocast or of q. q [B, T, heads, D]; k, v [B, T, key
/// heads, D], which are not copied for groups. window 0: none. The cost is proportional to the contents of documents
/// and window; the host does not wait. Returns [B, T, heads * D]. Differentiable.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentStarts& documents, double scale, std::int64_t window);

/// Causal attention of whole rows if keys have fewer heads than queries, without copying them for each query head;
/// otherwise like document_attention(). nullopt if LibTorch would choose a kernel that needs copies.
std::optional<at::Tensor> grouped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            double scale);

}  // namespace tessera::nn
