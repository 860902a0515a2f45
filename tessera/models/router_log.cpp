#include <tessera/models/router_log.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/moe/sinkhorn.h>

namespace tessera::models {
namespace {

/// Counts how often each row's tokens chose each expert: [B, E].
at::Tensor counts_by_row(const at::Tensor& ids, std::int64_t rows, std::int64_t experts) {
  const at::Tensor by_row = ids.view({rows, -1, ids.size(1)});
  const at::Tensor of_row = at::arange(rows, ids.options()).view({-1, 1, 1}) * experts;
  return nn::expert_counts((by_row + of_row).view({-1, ids.size(1)}), rows * experts)
      .view({rows, experts})
      .to(at::kDouble);
}

/// E sum_i c_i P_i / (slots * tokens): counts and sums of probabilities [..., E].
at::Tensor product(const at::Tensor& counts, const at::Tensor& sums, double slots, double tokens) {
  return (counts.to(sums.options()) * sums).sum() * (static_cast<double>(sums.size(-1)) / (slots * tokens));
}

at::Tensor plus(const at::Tensor& sum, const at::Tensor& more) { return sum.defined() ? sum + more : more; }

}  // namespace

void RouterLog::add(std::int64_t block, const nn::Routing& routing, std::int64_t rows) {
  if (!closed_) layers_.push_back({block, rows, routing});
}

nn::Routing RouterLog::within_capacity(const nn::Routing& routing, std::int64_t rows, const nn::RandomPlace& place) {
  const nn::CapacityOptions& capacity = options_.capacity;
  if (capacity.factor == 0) return routing;
  std::int64_t most = 0;
  const auto limited = [&](const nn::Routing& all) {
    most = nn::expert_capacity(all.ids.size(0), options_.top_k, options_.experts, capacity.factor);
    return nn::within_capacity(all, options_.experts, most, capacity.drop);
  };
  const BalanceOptions::TokensOfRows& others = options_.tokens_of_rows;
  nn::Routing kept = routing;
  if (!others.gather) {
    kept = limited(routing).routing;
  } else {
    // In the order of whole rows, so that ties and first-come choices are the same on every mesh.
    const std::int64_t here = routing.ids.size(0), tokens = here / rows;
    const at::Tensor at_row = at::arange(rows, at::kLong).unsqueeze(1), in_row = at::empty({tokens}, at::kLong);
    for (std::int64_t t = 0; t < tokens; ++t) in_row.mutable_data_ptr<std::int64_t>()[t] = place.position(t);
    constexpr std::int64_t longest = std::int64_t{1} << 32;
    const at::Tensor places = others.gather((at_row * longest + in_row).flatten().to(routing.ids.device()));
    const at::Tensor order = places.argsort(), back = order.argsort();
    nn::Routing all;
    all.ids = others.gather(routing.ids).index_select(0, order);
    all.weights = others.gather(routing.weights.detach()).index_select(0, order);
    kept.ids = limited(all).routing.ids.index_select(0, back).narrow(0, others.place * here, here);
    kept.complete = false;
    kept.weights = routing.weights.masked_fill(kept.ids.lt(0), 0);
  }
  if (capacity.pad) kept.padded_to = most;
  if (!closed_ && counts_) totals_->dropped += kept.ids.lt(0).sum().item<std::int64_t>();
  return kept;
}

at::Tensor RouterLog::sinkhorn(const at::Tensor& logits) const {
  const BalanceOptions::TokensOfRows& others = options_.tokens_of_rows;
  if (!others.gather) return nn::sinkhorn(logits);
  const std::int64_t here = logits.size(0);
  return nn::sinkhorn(others.gather(logits.detach())).narrow(0, others.place * here, here);
}

at::Tensor RouterLog::layer_loss(const Layer& layer) const {
  const at::Tensor& p = layer.routing.probabilities;
  const double slots = layer.counts.sum().item<double>(), tokens = slots / static_cast<double>(options_.top_k);
  if (options_.form == BalanceOptions::Form::micro_batch) return product(layer.counts.sum(0), p.sum(0), slots, tokens);
  if (options_.form == BalanceOptions::Form::sequence) {
    const at::Tensor sums = p.view({layer.rows, -1, p.size(1)}).sum(1);  // [B, E]
    const auto rows = static_cast<double>(layer.rows);
    return product(layer.counts, sums, slots / rows, tokens);  // the mean over rows of equal length
  }
  at::Tensor counts = totals_->load.at(layer.block);
  if (options_.sum) counts = options_.sum(counts);
  return product(counts, p.sum(0), counts.sum().item<double>(), tokens);
}

at::Tensor RouterLog::auxiliary_loss() const {
  at::Tensor sum;
  if (options_.form != BalanceOptions::Form::layers_together) {
    for (const Layer& layer : layers_) sum = plus(sum, layer_loss(layer));
    return sum;
  }
  if (!whole_)
    throw InputError(
        "the routers' balancing loss covers all layers together, as in transformers, but a stage of a "
        "pipeline sees only its own layers: use --router_aux_loss_form micro_batch (or sequence, or global_batch), or "
        "--pp_size 1");
  at::Tensor counts;
  for (const Layer& layer : layers_) {
    counts = plus(counts, layer.counts.sum(0));
    sum = plus(sum, layer.routing.probabilities.sum(0));
  }
  const double slots = counts.sum().item<double>(), tokens = slots / static_cast<double>(options_.top_k);
  return product(counts, sum, tokens, tokens);
}

at::Tensor RouterLog::finished(const at::Tensor& x) {
  closed_ = true;
  if (layers_.empty()) return x;
  if (counts_) ++totals_->passes;
  {
    std::vector<at::Tensor> counts;  // one sum over processes for all layers
    for (const Layer& layer : layers_) counts.push_back(counts_by_row(layer.routing.ids, layer.rows, options_.experts));
    at::Tensor all = at::stack(counts);  // [layers, B, E]
    if (options_.sum_tokens) all = options_.sum_tokens(all);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].counts = all[static_cast<std::int64_t>(i)];
      at::Tensor& load = totals_->load[layers_[i].block];
      load = plus(load, layers_[i].counts.sum(0) * (counts_ ? 1 : 0));
    }
  }
  at::Tensor y = x;
  if (options_.auxiliary > 0) {
    const at::Tensor loss = auxiliary_loss();
    if (counts_) totals_->auxiliary_loss += loss.item<double>();
    if (counts_) y = nn::with_loss(y, loss, options_.auxiliary * scale_);
  }
  if (options_.z > 0) {
    at::Tensor loss;
    for (const Layer& layer : layers_) {
      const double here = static_cast<double>(layer.routing.ids.numel()), whole = layer.counts.sum().item<double>();
      loss = plus(loss, nn::z_loss(layer.routing.logits) * (here / whole));
    }
    if (counts_) totals_->z_loss += loss.item<double>();
    if (counts_) y = nn::with_loss(y, loss, options_.z * scale_);
  }
  layers_.clear();
  return y;
}

}  // namespace tessera::models
