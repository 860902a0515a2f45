#pragma once
/// \file
/// The language-model head and its loss in one, without the full logits.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// Labels of this value are not scored (Hugging Face's and PyTorch's ignore_index).
inline constexpr std::int64_t ignored_label = -100;

/// Where the label of what position t predicts stands: at t + 1 (the tokens themselves), or at t.
enum class LabelPlace { next, own };

struct LossOptions {
  double label_smoothing = 0;  ///< in [0, 1): see label_smoothing.h
  LabelPlace place = LabelPlace::next;
  double softcap = 0;  ///< the logits are soft-capped at this (softcap.h); 0: they are not
};

/// scale * sum over b and t < T-1 with labels[b, t+1] != -100 of -log softmax(hidden[b, t] weight^T)[labels[b, t+1]].
/// hidden [B, T, C], weight [V, C], labels int64 [B, T]. Returns an fp32 scalar; the sum is formed in double. A label
/// outside [0, V) other than -100 throws Error. On the CPU in fp32 the tokens are taken in chunks (at least 256, as
/// many as C), under autocast with their products in bf16 and the rest in fp32; forward also forms both gradients (the
/// gradient of the logits overwrites them), so backward costs a scaling at most. On a CUDA device in fp32 or bf16 the
/// same in chunks of at least 8,192 (nn/device/head_loss.h); there a wrong label makes the loss NaN instead.
/// LabelPlace::own: labels[b, t] instead of labels[b, t+1], for all t < T. `bias` [V] is added to the logits; it may be
/// undefined.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                double scale, const LossOptions& options = {}, const at::Tensor& bias = {});

}  // namespace tessera::nn
