#include <tessera/parallel/context/batch.h>

#include <ATen/ATen.h>

#include <tessera/nn/attention.h>
#include <tessera/parallel/context/attention.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace tessera {
namespace {

/// labels[b, t + 1] at t; the last position of a row predicts nothing.
at::Tensor shifted(const at::Tensor& labels) {
  return at::constant_pad_nd(labels.slice(1, 1), {0, 1}, data::not_scored);
}

std::int64_t scored(const at::Tensor& labels) { return labels.ne(data::not_scored).sum().item<std::int64_t>(); }

}  // namespace

data::Batch cut_batch(const data::Batch& batch, const ContextGroups& groups, data::Objective::Kind objective) {
  if (groups.ranks() == 1) return batch;
  const std::int64_t rows = batch.ids.size(0), tokens = batch.ids.size(1), length = groups.padded(tokens);
  const auto mine = [&](const at::Tensor& x) { return context_part(x, groups); };

  const at::Tensor positions =  // [rows or 1, T]
      batch.document_starts.empty() ? at::arange(tokens, at::kLong).unsqueeze(0)
                                    : nn::document_positions(batch.document_starts, rows, tokens).view({rows, tokens});
  data::Batch cut = data::filled_up(batch, length);
  data::SequencePart part{.length = length,
                          .longest = positions.numel() > 0 ? positions.max().item<std::int64_t>() + 1 : 0};
  part.positions = mine(at::constant_pad_nd(positions, {0, length - tokens})).flatten();
  part.targets = mine(shifted(cut.labels));
  const at::Tensor own = mine(at::arange(length, at::kLong).unsqueeze(0)).contiguous();
  part.tokens = std::make_shared<const std::vector<std::int64_t>>(own.data_ptr<std::int64_t>(),
                                                                  own.data_ptr<std::int64_t>() + own.numel());
  cut.ids = mine(cut.ids);
  cut.labels = mine(cut.labels);
  if (cut.types.defined()) cut.types = mine(cut.types);
  if (cut.lengths.empty()) cut.lengths.assign(static_cast<std::size_t>(rows), tokens);
  const at::Tensor ends = at::tensor(cut.lengths, at::kLong).unsqueeze(1);  // [rows, 1]
  cut.tokens = mine(at::arange(length, at::kLong).unsqueeze(0).lt(ends)).sum().item<std::int64_t>();
  cut.scored_tokens = scored(objective == data::Objective::Kind::next_token ? part.targets : cut.labels);
  cut.labels_not_ignored = scored(cut.labels);
  cut.part = std::make_shared<const data::SequencePart>(std::move(part));
  return cut;
}

}  // namespace tessera
