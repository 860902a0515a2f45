#pragma once
/// \file
/// label_smoothing_factor for any module: the loss of transformers' LabelSmoother from outputs and labels.

#include <ATen/core/Tensor.h>

namespace tessera::faces {

/// The mean over the labels that are not -100 of (1 - smoothing) nll + smoothing / classes x sum_j -log softmax_j, one
/// element (nn/label_smoothing.h). logits [..., classes], labels [...]: whole numbers in [0, classes), or -100. Throws
/// InputError for other shapes and types. With gradient.
at::Tensor smoothed_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing);

}  // namespace tessera::faces
