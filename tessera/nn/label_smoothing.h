#pragma once
/// \file
/// Label smoothing (Szegedy et al. 2016) as an addition to the cross-entropy: the share `smoothing` of each target is
/// spread evenly over all classes. With logits x of V classes, target t and mean m = sum_j x_j / V,
///   smoothed loss = cross-entropy + smoothing (x_t - m)
///   its gradient  = softmax - [j == t] + smoothing ([j == t] - 1 / V)
/// which is (1 - smoothing) nll + smoothing / V sum_j -log softmax_j: torch's cross_entropy and transformers'
/// LabelSmoother.

#include <cstdint>

namespace tessera::nn {

/// Sum over the rows with targets[r] >= 0 of smoothing (x_t - m), in double. logits [rows, columns].
double smoothing_loss(const float* logits, const std::int64_t* targets, std::int64_t rows, std::int64_t columns,
                      double smoothing);
/// Adds scale * smoothing ([j == t] - 1 / V) to the gradients of these rows.
void add_smoothing_gradient(float* gradient, const std::int64_t* targets, std::int64_t rows, std::int64_t columns,
                            double smoothing, double scale);

}  // namespace tessera::nn
