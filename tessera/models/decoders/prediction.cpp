#include <tessera/models/decoders/prediction.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/linear_cross_entropy.h>

#include <utility>

namespace tessera::models {
namespace {

/// x[:, t + by] at t, or `beyond` past the end.
at::Tensor ahead(const at::Tensor& x, std::int64_t by, std::int64_t beyond) {
  at::Tensor moved = at::full_like(x, beyond);
  const std::int64_t left = x.size(1) - by;
  if (left > 0) moved.narrow(1, 0, left).copy_(x.narrow(1, by, left));
  return moved;
}

/// The index of each token's document, [B, T].
at::Tensor documents_of(const data::Batch& batch) {
  at::Tensor starts = at::zeros({batch.ids.numel()}, at::kLong);
  for (const std::int64_t start : batch.document_starts) starts.mutable_data_ptr<std::int64_t>()[start] = 1;
  return starts.cumsum(0).view(batch.ids.sizes()).to(batch.ids.device());
}

}  // namespace

Predictions further_tokens(const data::Batch& batch, std::int64_t depths) {
  TESSERA_CHECK(!batch.part, "multi-token prediction needs whole rows");
  const at::Tensor documents = batch.document_starts.empty() ? at::Tensor() : documents_of(batch);
  Predictions predictions;
  for (std::int64_t k = 1; k <= depths; ++k) {
    at::Tensor labels = ahead(batch.labels, k + 1, nn::ignored_label);
    if (documents.defined()) labels.masked_fill_(ahead(documents, k + 1, -1).ne(documents), nn::ignored_label);
    predictions.depths.push_back({.ids = ahead(batch.ids, k, 0), .labels = std::move(labels)});
  }
  return predictions;
}

SharedHead::SharedHead(const NormForm& form, std::int64_t width)
    : norm(register_module("norm", make_norm(form, width))) {}

PredictionEnds::PredictionEnds(const NormForm& form, std::int64_t width)
    : of_embedding(make_norm(form, width)),
      of_hidden(make_norm(form, width)),
      projection(std::make_shared<Linear>(2 * width, width, /*with_bias=*/false)),
      head(std::make_shared<SharedHead>(form, width)) {}

at::Tensor PredictionEnds::begin(const at::Tensor& hidden, const at::Tensor& embedded,
                                 const nn::RandomPlace& place) const {
  return projection->forward(at::cat({of_embedding->forward(embedded), of_hidden->forward(hidden)}, -1), place);
}

}  // namespace tessera::models
