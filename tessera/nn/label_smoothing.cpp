#include <tessera/nn/label_smoothing.h>

namespace tessera::nn {

double smoothing_loss(const float* logits, const std::int64_t* targets, std::int64_t rows, std::int64_t columns,
                      double smoothing) {
  double total = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    const float* x = logits + r * columns;
    double sum = 0;
    for (std::int64_t j = 0; j < columns; ++j) sum += x[j];
    total += smoothing * (static_cast<double>(x[targets[r]]) - sum / static_cast<double>(columns));
  }
  return total;
}

void add_smoothing_gradient(float* gradient, const std::int64_t* targets, std::int64_t rows, std::int64_t columns,
                            double smoothing, double scale) {
  const auto each = static_cast<float>(scale * smoothing / static_cast<double>(columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    float* g = gradient + r * columns;
    for (std::int64_t j = 0; j < columns; ++j) g[j] -= each;
    g[targets[r]] += static_cast<float>(scale * smoothing);
  }
}

}  // namespace tessera::nn
