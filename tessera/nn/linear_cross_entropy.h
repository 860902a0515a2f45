#pragma once
/// \file
/// The language-model head fused with its loss, without the full logits.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// Labels of this value are not scored (Hugging Face's and PyTorch's ignore_index).
inline constexpr std::int64_t ignored_label = -100;

/// Position of the label for the prediction at t: t + 1 (the tokens themselves), or t.
enum class LabelPlace { next, own };

struct LossOptions {
  double label_smoothing = 0;  ///< in [0, 1): see label_smoothing.h
  LabelPlace place = LabelPlace::next;
  double softcap = 0;  ///< the logits are soft-capped at this (softcap.h); 0: no cap
};

/// scale * sum over b and t < T-1 with labels[b, t+1] != -100 of -log softmax(hidden[b, t] weight^T)[labels[b, t+1]].
/// hidden [B, T, C], weight [V, C], labels int64 [B, T]. Returns an fp32 scalar; the sum is computed in double. A label
/// outside [0, V) other than -100 throws Error. On the CPU in fp32 the tokens are processed in chunks (of C, at least
/// 256); under autocast with products in bf16 and the rest in fp32. Forward also computes both gradients (the gradient
/// of the logits overwrites them), so backward costs at most a scaling. On a CUDA device in fp32 or bf16 the same in
/// chunks of at least 8,192 (nn/device/head_loss.h); there an invalid label makes the loss NaN instead.
/// LabelPlace::own: labels[b, t] instead of labels[b, t+1], for all t < T. `bias` [V] is added to the logits; it may be
/// undefined.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                double scale, const LossOptions& options = {}, const at::Tensor& bias = {});

}  // namespace tessera::nn
