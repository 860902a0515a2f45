#include <tessera/train/core/noise_scale.h>

#include <cmath>

namespace tessera::train {

NoiseEstimate noise_estimate(double n_small, double small, double n_big, double big) {
  return {.squared_norm = (big * n_big - small * n_small) / (big - small),
          .trace = (n_small - n_big) / (1 / small - 1 / big)};
}

void SmallBatches::begin_step(double share) {
  *this = SmallBatches();
  share_ = share;
}

void SmallBatches::add_rows(std::int64_t rows, std::int64_t scored_tokens) {
  rows_ += rows;
  tokens_ += scored_tokens;
}

void SmallBatches::end_backward() {
  if (!seen_) return;
  const double tokens = static_cast<double>(tokens_) * share_;  // the gradient is that of a mean, times this
  if (tokens > 0) weighted_ += static_cast<double>(rows_) * squares_ / (tokens * tokens);
  counted_rows_ += rows_;
  ++count_;
  rows_ = tokens_ = 0;
  squares_ = 0;
  seen_ = false;
}

void NoiseScale::add(const NoiseEstimate& sums, std::int64_t steps) {
  if (steps < 1 || !std::isfinite(sums.squared_norm) || !std::isfinite(sums.trace)) return;
  const double kept = weight_ * std::pow(decay, steps), all = kept + static_cast<double>(steps);
  average_.squared_norm = (kept * average_.squared_norm + sums.squared_norm) / all;
  average_.trace = (kept * average_.trace + sums.trace) / all;
  weight_ = all;
}

std::optional<double> NoiseScale::rows() const {
  if (weight_ <= 0 || average_.squared_norm <= 0 || average_.trace <= 0) return std::nullopt;
  return average_.trace / average_.squared_norm;
}

}  // namespace tessera::train
