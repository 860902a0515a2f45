#include <tessera/models/causal_lm.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/nn.h>
#include <algorithm>

namespace tessera::models {
namespace {

/// Length of the longest document of a batch [rows, length].
std::int64_t longest(const nn::DocumentStarts& documents, std::int64_t rows, std::int64_t length) {
  if (documents.empty()) return length;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < documents.size(); ++i)
    most = std::max(most, (i + 1 < documents.size() ? documents[i + 1] : rows * length) - documents[i]);
  return most;
}

}  // namespace

at::Tensor CausalLm::checked_hidden(const data::Batch& batch, KvCache* cache) {
  const at::Tensor& ids = batch.ids;
  const nn::DocumentStarts& documents = batch.document_starts;
  const data::SequencePart* const part = batch.part.get();
  TESSERA_CHECK(ids.dim() == 2, "ids must be [B, T]; they have ", ids.dim(), " dimensions");
  nn::check_documents(documents, ids.size(0), part ? part->length : ids.size(1));
  const std::int64_t tokens =
      part ? part->longest : (cache ? cache->tokens() : 0) + longest(documents, ids.size(0), ids.size(1));
  if (tokens > max_positions())
    throw InputError(concat("a sequence of ", tokens, " tokens does not fit the model's ", max_positions(),
                            " positions; use a shorter block_size or prompt"));
  ForwardContext context = context_of(batch);
  context.documents = documents;
  context.cache = cache;
  if (cache) context.embedding_noise = 0;
  return hidden(ids, std::move(context));
}

at::Tensor CausalLm::loss(const data::Batch& batch, double scale) {
  const at::Tensor h = checked_hidden(batch);
  if (batch.part)
    return nn::linear_cross_entropy(h, head(), batch.part->targets, scale, label_smoothing(), nn::LabelPlace::own);
  return nn::linear_cross_entropy(h, head(), batch.labels, scale, label_smoothing());
}

at::Tensor CausalLm::loss(const at::Tensor& ids, const at::Tensor& labels, double scale) {
  data::Batch batch;
  batch.ids = ids;
  batch.labels = labels;
  return loss(batch, scale);
}

at::Tensor CausalLm::forward(const at::Tensor& ids, const at::Tensor& attention_mask,
                             const at::Tensor& token_type_ids) {
  if (token_type_ids.defined()) throw InputError("forward: a causal model has no token types: leave them out");
  if (attention_mask.defined()) {
    if (attention_mask.sizes() != ids.sizes())
      throw InputError(concat("forward: attention_mask is ", c10::str(attention_mask.sizes()), ", ids are ",
                              c10::str(ids.sizes()), ": both must be [B, T]"));
    if (attention_mask.ne(0).to(at::kChar).diff(1, 1).gt(0).any().item<bool>())
      throw InputError(
          "forward: attention_mask hides tokens before others: pad rows at their end, where a causal model does not "
          "look (padding_side right), or take several documents in a row with logits(ids, documents)");
  }
  return logits(ids);
}

at::Tensor CausalLm::logits(const at::Tensor& ids, const nn::DocumentStarts& documents) {
  data::Batch batch;
  batch.ids = ids;
  batch.document_starts = documents;
  return nn::linear(checked_hidden(batch), head(), {}, nn::WeightLayout::out_in).to(at::kFloat);
}

at::Tensor CausalLm::next_logits(const at::Tensor& ids, KvCache& cache) {
  data::Batch batch;
  batch.ids = ids;
  const at::Tensor last = checked_hidden(batch, &cache).select(1, -1);  // [B, C]
  return nn::linear(last, head(), {}, nn::WeightLayout::out_in).to(at::kFloat);
}

}  // namespace tessera::models
