#pragma once
/// \file
/// The gradient noise scale during a run (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training",
/// appendix A).
///
/// The expected squared norm of a mean gradient over B rows is |G|^2 + tr(S) / B, where G is the true gradient and S
/// the covariance of a single row's gradient. A step yields it for two sizes without any extra pass: for the small
/// batches on each rank before gradients are reduced, and for the whole step. Unbiased estimates follow,
///
///   |G|^2 = (B_big n_big - B_small n_small) / (B_big - B_small)
///   tr(S) = (n_small - n_big) / (1 / B_small - 1 / B_big)
///
/// each of which is averaged over steps separately (their ratio is biased, and for a single step mostly noise). The
/// noise scale is tr(S) / |G|^2, in rows: much smaller batches waste steps, much larger ones waste rows.

#include <cstdint>
#include <memory>
#include <optional>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

class RunFeature;

/// Estimates of one step, or sums of several.
struct NoiseEstimate {
  double squared_norm = 0;  ///< |G|^2
  double trace = 0;         ///< tr(S), per row
};

/// n_small, n_big: squared norms of mean gradients over `small` and `big` rows. `small` < `big`.
NoiseEstimate noise_estimate(double n_small, double small, double n_big, double big);

/// Accumulates the small batches of a step on this rank as their gradients arrive.
class SmallBatches {
 public:
  /// Starts a step whose loss is the sum over tokens times `share` (1 / scored tokens of the step, times the loss
  /// scale).
  void begin_step(double share);
  /// Starts a backward pass over `rows` rows and `scored_tokens` scored tokens.
  void add_rows(std::int64_t rows, std::int64_t scored_tokens);
  /// Adds the squared norm of part of the gradient accumulated since the last end_backward().
  void add_squares(double squares) { squares_ += squares, seen_ = true; }
  /// Ends the backward pass. Gradients that arrived during it are those of one small batch.
  void end_backward();

  std::int64_t count() const { return count_; }
  std::int64_t rows() const { return counted_rows_; }
  /// Sum over the small batches of rows x squared norm of the mean gradient.
  double weighted() const { return weighted_; }

 private:
  double share_ = 1, squares_ = 0, weighted_ = 0;
  std::int64_t rows_ = 0, tokens_ = 0, counted_rows_ = 0, count_ = 0;
  bool seen_ = false;
};

/// Averages over the steps of a run; older steps have less weight.
class NoiseScale {
 public:
  static constexpr double decay = 0.98;  ///< factor by which a step's weight shrinks with each later step
  /// Adds sums over `steps` steps; ignores sums that are not finite.
  void add(const NoiseEstimate& sums, std::int64_t steps);
  /// The noise scale in rows; empty while the estimates are meaningless (no step yet, or |G|^2 not above 0).
  std::optional<double> rows() const;
  const NoiseEstimate& average() const { return average_; }

 private:
  NoiseEstimate average_;
  double weight_ = 0;
};

/// Feature for --gradient_noise_scale; null: it is off.
std::unique_ptr<RunFeature> make_noise_scale(const RunConfig& config);

}  // namespace tessera::train
