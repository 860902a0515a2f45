#pragma once
/// \file
/// Pairs of answers in a run: what the reference says of them, the loss of a micro-batch, and what the log says.

#include <tessera/config/sections/optimization_config.h>
#include <tessera/data/dataset.h>
#include <tessera/models/language_model.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/loss/preference.h>
#include <tessera/train/reporting/metrics.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::train {

/// Not thread-safe.
class Preferences {
 public:
  explicit Preferences(const OptimizationConfig& config) : config_(config) {}

  /// The log-probabilities of all rows that the run has still to see, and of those to validate on, by the reference:
  /// ref_model_name_or_path, or the model as it is before the first step (of LoRA: the model that is adapted). A run
  /// that goes on from a checkpoint reads that model again. Each rank computes its share; a reference that is read lies
  /// whole on each meanwhile. Nothing for losses without one. Collective over setup.groups.data. Throws InputError for
  /// a reference with another vocabulary.
  /// Returns what there is to say, or "".
  std::string measure_reference(const Setup& setup, const data::Sampler& sampler, std::int64_t first_sample,
                                std::int64_t end_sample);

  /// The sum over the pairs of the loss, times `scale`: a scalar with gradients. `batch`: as data::as_pairs() makes it,
  /// of samples batch.first_row / 2 and the following ones, on the model's device.
  at::Tensor loss(models::LanguageModel& model, const data::Sampler& sampler, const data::Batch& batch, double scale);
  /// 0, and not counted: for a batch of no samples, to see whether it fits the memory, or one that does not count
  /// (data::Batch::counts).
  at::Tensor trial_loss(models::LanguageModel& model, const data::Batch& batch);

  /// The loss and the rewards of the pairs to validate on, all of them once, as train/loop/evaluate.h has it: sums are
  /// added in the order of the batches. `together`: a forward pass is collective. Collective over setup.groups.data.
  EvalMetrics evaluate(const Setup& setup, bool together) const;

  /// What this rank has summed since the last call: rewards of chosen and of rejected answers, pairs whose chosen
  /// answer has the higher one, log-probabilities of chosen and of rejected answers, pairs.
  std::vector<double> take_sums();
  /// Means, of sums over the ranks that lie from `sums` on.
  static PreferenceMetrics metrics_of(const double* sums);

 private:
  static constexpr std::size_t sums_count = 6;  // what take_sums() has

  /// What the reference says of rows of a dataset.
  struct Reference {
    std::vector<std::int64_t> rows;  ///< ascending
    std::vector<double> values;      ///< two of each: chosen, rejected
  };
  static void measure(const Setup& setup, models::LanguageModel& model, const data::Dataset& dataset,
                      std::optional<at::ScalarType> narrow, bool together, Reference& reference);
  at::Tensor reference_of(const Reference& reference, const data::Sampler& sampler, const data::Batch& batch) const;

  OptimizationConfig config_;
  Reference train_, validation_;
  std::vector<double> sums_ = std::vector<double>(sums_count, 0);
};

}  // namespace tessera::train
