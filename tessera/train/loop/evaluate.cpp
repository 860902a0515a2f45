#include <tessera/train/loop/evaluate.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/base/clock.h>
#include <tessera/comm/life.h>
#include <tessera/comm/recorder.h>
#include <tessera/nn/autocast.h>
#include <tessera/train/core/to_device.h>

namespace tessera::train {

EvalMetrics evaluate(models::LanguageModel& model, const data::Dataset& dataset, std::int64_t batch_size,
                     const comm::Group& group, std::optional<at::ScalarType> narrow, bool together, bool nan_filter,
                     const LossesOf& pipeline, std::int64_t at_once) {
  const comm::Tag tag("evaluation");
  const std::int64_t begin_ns = monotonic_ns();
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();

  const data::Sampler in_order(SamplingStrategy::sequential, dataset.size(), 0);
  const std::int64_t all_batches = (dataset.size() + batch_size - 1) / batch_size;
  const std::int64_t own_batches = (all_batches + group.size() - 1) / group.size();  // the last ones may be missing
  std::vector<double> sums(static_cast<std::size_t>(own_batches), 0.0);
  std::int64_t tokens = 0, batches = 0, left_out = 0;
  std::vector<data::Batch> waiting;  // for the pipeline
  std::vector<double> scales;
  std::vector<std::int64_t> places;  // in sums; -1: does not count
  const std::int64_t classes = model.num_labels();
  model.keep_predictions(classes > 0);
  at::Tensor counts = at::zeros({3, classes}, at::kDouble);  // found, taken for, there: rows of each class
  const auto count = [&](const data::Batch& batch, at::Tensor found) {
    const at::Tensor labels = batch.labels.select(1, 0).cpu(), valid = labels.ge(0);
    const at::Tensor truth = labels.masked_select(valid);
    found = found.cpu().masked_select(valid);
    const auto by_class = [&](const at::Tensor& rows) { return at::bincount(rows, {}, classes).to(at::kDouble); };
    counts += at::stack({by_class(truth.masked_select(truth == found)), by_class(found), by_class(truth)});
  };
  const auto note = [&](std::int64_t place, double sum, std::int64_t scored) {
    if (nan_filter && !std::isfinite(sum)) {
      left_out += scored;
      return;
    }
    sums[static_cast<std::size_t>(place)] = sum;
    tokens += scored;
  };
  const auto run_pipeline = [&] {
    const std::vector<double> losses = pipeline(waiting, scales);
    comm::life().advance();
    const std::vector<at::Tensor> found = model.take_predictions();
    for (std::size_t i = 0; i < found.size(); ++i)
      if (places[i] >= 0) count(waiting[i], found[i]);
    for (std::size_t i = 0; i < waiting.size(); ++i)
      if (places[i] >= 0) note(places[i], losses[i] / scales[i], waiting[i].scored_tokens);
    waiting.clear();
    scales.clear();
    places.clear();
  };
  for (std::int64_t k = 0; k < own_batches; ++k) {
    const std::int64_t own_row = (k * group.size() + group.rank()) * batch_size;
    const bool has_rows = own_row < dataset.size();
    if (!has_rows && !together) break;
    const std::int64_t row = has_rows ? own_row : 0;  // a rank without a batch goes along, for the others' sake
    batches += has_rows;
    const data::Batch batch =
        to_device(data::make_batch(dataset, in_order, row, std::min(batch_size, dataset.size() - row)), group.device());
    if (batch.scored_tokens == 0 && !together) continue;
    // The scale keeps the fp32 result near 1, where its rounding is that of a mean.
    const double scale = 1.0 / static_cast<double>(std::max<std::int64_t>(1, batch.scored_tokens));
    if (pipeline) {
      waiting.push_back(batch);
      scales.push_back(scale);
      places.push_back(has_rows && batch.scored_tokens > 0 ? k : -1);
      if (std::ssize(waiting) >= at_once || k + 1 == own_batches) run_pipeline();
      continue;
    }
    const nn::Autocast precision(narrow, group.device().type());
    const at::Tensor loss = model.loss(batch, scale);
    comm::life().advance();
    for (const at::Tensor& found : model.take_predictions())
      if (has_rows) count(batch, found);
    if (has_rows && batch.scored_tokens > 0) note(k, loss.item<double>() / scale, batch.scored_tokens);
  }
  model.train(was_training);
  model.keep_predictions(false);

  const auto options = at::TensorOptions().dtype(at::kDouble);
  sums.push_back(static_cast<double>(tokens));
  sums.push_back(static_cast<double>(left_out));
  sums.insert(sums.end(), counts.const_data_ptr<double>(), counts.const_data_ptr<double>() + counts.numel());
  const auto fields = static_cast<std::int64_t>(sums.size());
  at::Tensor all = at::empty({group.size() * fields}, options.device(group.device()));  // [ranks x fields]
  group.all_gather(all, at::tensor(sums, options).to(group.device())).wait();
  all = all.cpu();
  const auto field = [&](int rank, std::int64_t k) { return all.const_data_ptr<double>()[rank * fields + k]; };
  double total_sum = 0, total_tokens = 0, total_left_out = 0;
  for (std::int64_t k = 0; k < own_batches; ++k)
    for (int rank = 0; rank < group.size(); ++rank) total_sum += field(rank, k);
  for (int rank = 0; rank < group.size(); ++rank) {
    total_tokens += field(rank, own_batches);
    total_left_out += field(rank, own_batches + 1);
  }
  std::vector<double> all_counts(static_cast<std::size_t>(counts.numel()), 0.0);
  for (std::size_t i = 0; i < all_counts.size(); ++i)
    for (int rank = 0; rank < group.size(); ++rank)
      all_counts[i] += field(rank, own_batches + 2 + static_cast<std::int64_t>(i));
  EvalMetrics metrics;
  metrics.classes = class_metrics(all_counts);
  metrics.loss =
      total_tokens == 0 && total_left_out > 0 ? std::numeric_limits<double>::quiet_NaN() : total_sum / total_tokens;
  metrics.tokens = static_cast<std::int64_t>(total_tokens);
  metrics.rows = dataset.size();
  metrics.batches = batches;
  metrics.seconds = seconds_since(begin_ns);
  return metrics;
}

}  // namespace tessera::train
