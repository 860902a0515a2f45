#pragma once
/// \file
/// Metrics between two logs: each rank sums its own values, and a log combines the sums.

#include <tessera/comm/group.h>
#include <tessera/data/dataset.h>
#include <tessera/nn/device/send.h>
#include <tessera/train/reporting/metrics.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace tessera::train {

/// Counts of one step, over all ranks and micro-batches (defined in data::Batch).
struct StepCounts {
  std::int64_t scored_tokens = 0, tokens = 0, labels_not_ignored = 0;
  std::int64_t inputs = 0;  ///< tokens including padding
};
StepCounts count(const std::vector<data::Batch>& batches);

/// `loss` or, if it is not finite, the mean of the `count` losses before it, whose sum is `sum`; 0 without such losses
/// (transformers' logging_nan_inf_filter).
double finite_or_mean(double loss, double sum, std::size_t count);

/// The loss is the mean over the scored tokens of the window. With hf_loss_scale it is the value of transformers'
/// Trainer: for each step the sum of the cross-entropies divided by the number of labels (!= -100, including the first
/// of each row although nothing predicts it), averaged over the steps of the window. With nan_filter a loss that is not
/// finite counts as the mean of this rank's earlier ones in the window (transformers' logging_nan_inf_filter), or as 0
/// without earlier ones.
class Window {
 public:
  explicit Window(bool hf_loss_scale, bool nan_filter = false)
      : hf_loss_scale_(hf_loss_scale), nan_filter_(nan_filter) {}

  void begin_step(const StepCounts& all_ranks);
  /// Adds this rank's sum of cross-entropies of a micro-batch of that step.
  void add_loss(double cross_entropy);
  /// Same for a loss that is read as soon as this needs no wait, at the latest by close(); `cross_entropy_of` converts
  /// it.
  void add_loss(nn::LateNumber loss, std::function<double(double)> cross_entropy_of);
  /// Records that the step took `seconds` and that this rank's threads used `cpu_seconds` of processor time.
  void end_step(double seconds, double cpu_seconds);

  std::int64_t steps() const { return steps_; }
  /// Tokens of the last step over all ranks.
  std::int64_t step_tokens() const { return counts_.tokens; }
  std::int64_t step_inputs() const { return counts_.inputs; }
  /// An estimate from this rank alone, for the time before the first log: `ranks` times this rank's share. NaN if no
  /// loss has been read from a device yet.
  double rough_loss(int ranks) const;

  /// Combines the ranks' numbers, adds the losses in the order of the micro-batches (k x ranks + place, one step after
  /// another: the same bits for every number of ranks that computes the same micro-batches), and resets the window.
  /// Fills loss, tokens_per_second, step_time_ms, cpu_seconds, cpu_utilization, phases and the memory of all ranks.
  /// `phases`: this rank's seconds of the window; `threads`: number per rank; `place`: index of this rank's
  /// micro-batches among all that run at once (RunGroups::place); `sums`: further values to sum over the ranks
  /// (StepMetrics::sums), the same count on each. Collective. At least one step must have ended.
  StepMetrics close(const comm::Group& group, const PhaseSeconds& phases, const MemoryByKind& memory,
                    std::int64_t threads, int place = 0, const std::vector<double>& sums = {});

 private:
  struct LateLoss {
    nn::LateNumber loss;
    std::function<double(double)> cross_entropy_of;
    std::int64_t labels_not_ignored;  ///< labels of the step
  };

  void add_loss(double cross_entropy, std::int64_t labels_not_ignored);
  /// Reads the losses that are available; with `wait`, all losses.
  void read_losses(bool wait);

  bool hf_loss_scale_, nan_filter_;
  StepCounts counts_;
  std::deque<LateLoss> late_losses_;  // losses not read yet, in the order of the micro-batches
  std::vector<double> losses_;        // this rank's micro-batches
  std::int64_t scored_ = 0;           // over all ranks
  std::int64_t tokens_ = 0;           // over all ranks
  std::int64_t steps_ = 0;
  double seconds_ = 0, cpu_seconds_ = 0;
};

}  // namespace tessera::train
