#include <tessera/train/evaluate.h>

#include <ATen/ATen.h>

#include <algorithm>

#include <tessera/comm/recorder.h>
#include <tessera/nn/autocast.h>

namespace tessera::train {

data::Batch to_device(data::Batch batch, c10::Device device) {
  batch.ids = batch.ids.to(device);
  batch.labels = batch.labels.to(device);
  return batch;
}

EvalMetrics evaluate(models::CausalLm& model, const data::Dataset& dataset, std::int64_t batch_size,
                     const comm::Group& group, bool bf16) {
  const comm::Tag tag("evaluation");
  const std::int64_t begin_ns = comm::monotonic_ns();
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();

  const data::Sampler in_order("sequential", dataset.size(), 0);
  const std::int64_t first = dataset.size() * group.rank() / group.size();
  const std::int64_t end = dataset.size() * (group.rank() + 1) / group.size();
  double sum = 0;
  std::int64_t tokens = 0;
  for (std::int64_t row = first; row < end; row += batch_size) {
    const data::Batch batch =
        to_device(data::make_batch(dataset, in_order, row, std::min(batch_size, end - row)), group.device());
    if (batch.scored_tokens == 0) continue;
    // The scale keeps the fp32 result near 1, where its rounding is that of a mean.
    const double scale = 1.0 / static_cast<double>(batch.scored_tokens);
    const nn::Autocast precision(bf16, group.device().type());
    const at::Tensor loss = model.loss(batch, scale);
    sum += loss.item<double>() / scale;
    tokens += batch.scored_tokens;
  }
  model.train(was_training);

  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor mine = at::empty({2}, options);
  mine.data_ptr<double>()[0] = sum;
  mine.data_ptr<double>()[1] = static_cast<double>(tokens);
  const at::Tensor all = at::empty({2 * group.size()}, options.device(group.device()));
  group.all_gather(all, mine.to(group.device())).wait();
  const at::Tensor totals = all.cpu().view({group.size(), 2});
  double total_sum = 0, total_tokens = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    total_sum += totals.data_ptr<double>()[2 * rank];
    total_tokens += totals.data_ptr<double>()[2 * rank + 1];
  }
  EvalMetrics metrics;
  metrics.loss = total_sum / total_tokens;
  metrics.tokens = static_cast<std::int64_t>(total_tokens);
  metrics.rows = dataset.size();
  metrics.batches = (end - first + batch_size - 1) / batch_size;
  metrics.seconds = static_cast<double>(comm::monotonic_ns() - begin_ns) * 1e-9;
  return metrics;
}

}  // namespace tessera::train
