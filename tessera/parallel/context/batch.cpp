#include <tessera/parallel/context/batch.h>

#include <ATen/ATen.h>

#include <tessera/nn/attention.h>
#include <tessera/parallel/context/attention.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace tessera {
namespace {

/// x [rows, T] -> [rows, length], filled with `value`.
at::Tensor filled_up(const at::Tensor& x, std::int64_t length, std::int64_t value) {
  return at::constant_pad_nd(x, {0, length - x.size(1)}, value);
}

/// labels[b, t + 1] at t; the last position of a row predicts nothing.
at::Tensor shifted(const at::Tensor& labels) { return filled_up(labels.slice(1, 1), labels.size(1), data::not_scored); }

std::int64_t scored(const at::Tensor& labels) { return labels.ne(data::not_scored).sum().item<std::int64_t>(); }

/// The same starts in rows of another length.
nn::DocumentStarts in_rows_of(const nn::DocumentStarts& starts, std::int64_t from, std::int64_t to) {
  nn::DocumentStarts moved;
  for (const std::int64_t start : starts) moved.push_back(start / from * to + start % from);
  return moved;
}

}  // namespace

data::Batch cut_batch(const data::Batch& batch, const ContextGroups& groups, data::Objective::Kind objective) {
  if (groups.ranks() == 1) return batch;
  const std::int64_t rows = batch.ids.size(0), tokens = batch.ids.size(1), length = groups.padded(tokens);
  const auto mine = [&](const at::Tensor& x) { return context_part(x, groups); };

  const at::Tensor labels = filled_up(batch.labels, length, data::not_scored);
  const at::Tensor positions =  // [rows or 1, T]
      batch.document_starts.empty() ? at::arange(tokens, at::kLong).unsqueeze(0)
                                    : nn::document_positions(batch.document_starts, rows, tokens).view({rows, tokens});
  data::SequencePart part{.length = length,
                          .longest = positions.numel() > 0 ? positions.max().item<std::int64_t>() + 1 : 0};
  part.positions = mine(filled_up(positions, length, 0)).flatten();
  part.targets = mine(shifted(labels));

  data::Batch cut = batch;
  cut.ids = mine(filled_up(batch.ids, length, 0));
  cut.labels = mine(labels);
  if (batch.types.defined()) cut.types = mine(filled_up(batch.types, length, 0));
  cut.document_starts = in_rows_of(batch.document_starts, tokens, length);
  if (cut.lengths.empty()) cut.lengths.assign(static_cast<std::size_t>(rows), tokens);
  const at::Tensor ends = at::tensor(cut.lengths, at::kLong).unsqueeze(1);  // [rows, 1]
  cut.tokens = mine(at::arange(length, at::kLong).unsqueeze(0).lt(ends)).sum().item<std::int64_t>();
  cut.scored_tokens = scored(objective == data::Objective::Kind::next_token ? part.targets : cut.labels);
  cut.labels_not_ignored = scored(cut.labels);
  cut.part = std::make_shared<const data::SequencePart>(std::move(part));
  return cut;
}

}  // namespace tessera
