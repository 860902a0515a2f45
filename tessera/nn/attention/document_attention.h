#pragma once
/// \file
/// Attention in bf16 and fp16 on a CUDA device by those of LibTorch's kernels that need neither masks nor copies: the
/// flash kernel for rows of different lengths (documents, windows), and kernels that know groups of query heads.

#include <ATen/core/Tensor.h>

#include <tessera/nn/documents.h>

#include <cstdint>
#include <optional>

namespace tessera::nn {

/// Whether document_attention() takes these: bf16 or fp16 (also by autocast) on a CUDA device, D a multiple of 8 up to
/// 256, at most 65,535 documents or rows (a grid's limit), at most 1,024 documents or such of 16 tokens and more on
/// average (backward needs 128 x heads x D fp32 for each), and flash kernels not switched off in LibTorch. They need
/// compute capability 8.0, as our own kernels do.
bool document_attention_takes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentStarts& documents);

/// nn::attention() without softcap and dropout, in the type of autocast or of q. q [B, T, heads, D]; k, v [B, T, key
/// heads, D], which are not copied for groups. window 0: none. Costs what the documents and the window contain; the
/// host does not wait. Returns [B, T, heads * D]. Differentiable.
at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const DocumentStarts& documents, double scale, std::int64_t window);

/// Causal attention of whole rows where keys have fewer heads than queries, without copies of them for each query head;
/// otherwise as document_attention(). Nothing where LibTorch would choose a kernel that wants them copied.
std::optional<at::Tensor> grouped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            double scale);

}  // namespace tessera::nn
