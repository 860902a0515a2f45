#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/data/objective.h>

namespace tessera::data {
namespace {

/// splitmix64: yields a stream of 64-bit numbers for each key.
struct Stream {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
};

void mask(Batch& batch, const Objective& objective, std::int64_t first) {
  TESSERA_CHECK(objective.vocab_size > 0, "masking without a vocabulary");
  const std::int64_t rows = batch.ids.size(0), length = batch.ids.size(1);
  batch.ids = batch.ids.contiguous().clone();
  auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
  auto* labels = batch.labels.mutable_data_ptr<std::int64_t>();
  const auto is_special = [&](std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(objective.special.size()) &&
           objective.special[static_cast<std::size_t>(id)];
  };
  std::int64_t scored = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    Stream key{objective.seed};
    Stream stream{key.next() ^ static_cast<std::uint64_t>(first + row) * 0xd1342543de82ef95u};
    for (std::int64_t t = 0; t < length; ++t) {
      std::int64_t &id = ids[row * length + t], &label = labels[row * length + t];
      // always draws three numbers per position, so that a position's choices do not depend on earlier positions
      const double chosen = stream.uniform(), how = stream.uniform();
      const std::uint64_t any = stream.next();
      if (label == not_scored || is_special(id) || chosen >= objective.probability) {
        label = not_scored;
        continue;
      }
      label = id;
      ++scored;
      if (how < 0.8)
        id = objective.mask_id;
      else if (how < 0.9)
        id = static_cast<std::int64_t>(any % static_cast<std::uint64_t>(objective.vocab_size));
    }
  }
  batch.scored_tokens = batch.labels_not_ignored = scored;
}

}  // namespace

Batch Objective::operator()(Batch batch, std::int64_t first) const {
  if (kind == Kind::next_token) return batch;
  if (!batch.document_starts.empty())
    throw InputError(
        "--packing puts several examples in one row, which only causal language models support; remove it");
  if (kind == Kind::masked_token)
    mask(batch, *this, first);
  else
    batch.scored_tokens = batch.labels_not_ignored;  // the first column is scored, too
  return batch;
}

}  // namespace tessera::data
