#include <tessera/train/loop/evaluate.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/base/clock.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/recorder.h>
#include <tessera/data/to_device.h>
#include <tessera/nn/autocast.h>

namespace tessera::train {

namespace {

/// This rank's results, by batch index among all batches.
class Evaluation {
 public:
  Evaluation(std::int64_t batches, std::int64_t classes, bool nan_filter)
      : classes_(classes),
        nan_filter_(nan_filter),
        sums_(static_cast<std::size_t>(batches), 0.0),
        counts_(at::zeros({3, classes}, at::kDouble)) {}

  /// Records the sum of cross-entropies of batch `place`.
  void note(std::int64_t place, double sum, std::int64_t scored) {
    if (nan_filter_ && !std::isfinite(sum)) {
      left_out_ += scored;
      return;
    }
    sums_[static_cast<std::size_t>(place)] = sum;
    tokens_ += scored;
  }
  /// Counts the classes that a classifier predicted for the rows of a batch.
  void count(const data::Batch& batch, at::Tensor found) {
    const at::Tensor labels = batch.labels.select(1, 0).cpu(), valid = labels.ge(0);
    const at::Tensor truth = labels.masked_select(valid);
    found = found.cpu().masked_select(valid);
    const auto by_class = [&](const at::Tensor& rows) { return at::bincount(rows, {}, classes_).to(at::kDouble); };
    counts_ += at::stack({by_class(truth.masked_select(truth == found)), by_class(found), by_class(truth)});
  }
  /// The metrics over all ranks: losses are summed in batch order. Collective.
  EvalMetrics together(const comm::Group& group) const {
    std::vector<double> own = sums_;
    own.push_back(static_cast<double>(tokens_));
    own.push_back(static_cast<double>(left_out_));
    own.insert(own.end(), counts_.const_data_ptr<double>(), counts_.const_data_ptr<double>() + counts_.numel());
    const auto fields = static_cast<std::int64_t>(own.size());
    const auto options = at::TensorOptions().dtype(at::kDouble);
    at::Tensor all = at::empty({group.size() * fields}, options.device(group.device()));  // [ranks x fields]
    group.all_gather(all, at::tensor(own, options).to(group.device())).wait();
    all = all.cpu();
    const auto sum_of = [&](std::size_t field) {
      double sum = 0;
      for (int rank = 0; rank < group.size(); ++rank)
        sum += all.const_data_ptr<double>()[rank * fields + static_cast<std::int64_t>(field)];
      return sum;
    };
    double loss = 0;
    for (std::size_t k = 0; k < sums_.size(); ++k)
      for (int rank = 0; rank < group.size(); ++rank)
        loss += all.const_data_ptr<double>()[rank * fields + static_cast<std::int64_t>(k)];
    const double tokens = sum_of(sums_.size()), left_out = sum_of(sums_.size() + 1);
    std::vector<double> counts(static_cast<std::size_t>(counts_.numel()));
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = sum_of(sums_.size() + 2 + i);
    EvalMetrics metrics;
    metrics.classes = class_metrics(counts);
    metrics.loss = tokens == 0 && left_out > 0 ? std::numeric_limits<double>::quiet_NaN() : loss / tokens;
    metrics.tokens = static_cast<std::int64_t>(tokens);
    return metrics;
  }

 private:
  std::int64_t classes_;
  bool nan_filter_;
  std::vector<double> sums_;
  std::int64_t tokens_ = 0, left_out_ = 0;
  at::Tensor counts_;  // rows per class: correct, predicted, actual
};

/// Batches that pass through a pipeline together.
struct WaitingBatches {
  std::vector<data::Batch> batches = {};
  std::vector<double> scales = {};
  std::vector<std::int64_t> places = {};  ///< -1: not counted

  void pass(models::LanguageModel& model, const LossesOf& pipeline, Evaluation& evaluation) {
    const std::vector<double> losses = pipeline(batches, scales);
    comm::heartbeat().advance();
    const std::vector<at::Tensor> found = model.take_predictions();
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (places[i] < 0) continue;
      if (i < found.size()) evaluation.count(batches[i], found[i]);
      evaluation.note(places[i], losses[i] / scales[i], batches[i].scored_tokens);
    }
    *this = {};
  }
};

}  // namespace

std::optional<EvalMetrics> evaluate(models::LanguageModel& model, const data::Dataset& dataset,
                                    const comm::Group& group, const EvaluationForm& form, const Evaluating& how) {
  const comm::Tag tag("evaluation");
  const std::int64_t begin_ns = monotonic_ns();
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  model.keep_predictions(model.num_labels() > 0);

  const data::Sampler in_order(SamplingStrategy::sequential, dataset.size(), 0);
  const std::int64_t batch_size = form.batch_size, all_batches = (dataset.size() + batch_size - 1) / batch_size;
  // the last batches may have no rows
  const std::int64_t own_batches = (all_batches + group.size() - 1) / group.size();
  Evaluation evaluation(own_batches, model.num_labels(), form.nan_filter);
  WaitingBatches waiting;  // for the pipeline
  std::int64_t batches = 0;
  bool given_up = false;
  for (std::int64_t k = 0; k < own_batches; ++k) {
    given_up = !how.goes_on(k, own_batches);
    if (given_up) break;
    const std::int64_t own_row = (k * group.size() + group.rank()) * batch_size;
    const bool has_rows = own_row < dataset.size();
    if (!has_rows && !how.together) break;
    // a rank without a batch takes part in the other ranks' collectives
    const std::int64_t row = has_rows ? own_row : 0;
    batches += has_rows;
    const data::Batch batch =
        to_device(data::make_batch(dataset, in_order, row, std::min(batch_size, dataset.size() - row)), group.device());
    if (batch.scored_tokens == 0 && !how.together) continue;
    // The scale keeps the fp32 result near 1, so that it rounds like a mean.
    const double scale = 1.0 / static_cast<double>(std::max<std::int64_t>(1, batch.scored_tokens));
    const bool counts = has_rows && batch.scored_tokens > 0;
    if (how.pipeline) {
      waiting.batches.push_back(batch);
      waiting.scales.push_back(scale);
      waiting.places.push_back(counts ? k : -1);
      if (std::ssize(waiting.batches) >= form.at_once || k + 1 == own_batches)
        waiting.pass(model, how.pipeline, evaluation);
      continue;
    }
    const nn::Autocast precision(form.narrow, group.device().type());
    const at::Tensor loss = model.loss(batch, scale);
    comm::heartbeat().advance();
    for (const at::Tensor& found : model.take_predictions())
      if (has_rows) evaluation.count(batch, found);
    if (counts) evaluation.note(k, loss.item<double>() / scale, batch.scored_tokens);
  }
  model.train(was_training);
  model.keep_predictions(false);
  if (given_up) return std::nullopt;
  EvalMetrics metrics = evaluation.together(group);
  metrics.rows = dataset.size();
  metrics.batches = batches;
  metrics.seconds = seconds_since(begin_ns);
  return metrics;
}

}  // namespace tessera::train
