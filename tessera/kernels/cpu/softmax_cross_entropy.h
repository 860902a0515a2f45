#pragma once
/// \file
/// Cross-entropy of rows of logits, which are overwritten by the gradient.

#include <cstdint>

namespace tessera::kernels {

/// For each row r with target t = targets[r] >= 0: loss = log(sum_j exp(x_j - max)) + max - x_t. A negative target is
/// not scored. With `gradient`, x_j becomes scale * (softmax(x)_j - [j == t]), and 0 in rows that are not scored;
/// without it x is unchanged. Returns the sum of the losses of the scored rows (not scaled), in double. logits [rows,
/// columns], each target < columns.
double softmax_cross_entropy(float* logits, const std::int64_t* targets, std::int64_t rows, std::int64_t columns,
                             float scale, bool gradient);

}  // namespace tessera::kernels
