#include <tessera/models/router_log.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>

namespace tessera::models {

void RouterLog::add(std::int64_t block, const nn::Routing& routing, std::int64_t rows) {
  if (!closed_) layers_.push_back({block, rows, routing});
}

at::Tensor RouterLog::auxiliary_loss() const {
  if (options_.form == BalanceOptions::Form::layers_together) {
    if (!whole_)
      throw InputError(
          "the router's auxiliary loss is that of all layers together, as transformers has it, and a stage of a "
          "pipeline sees its own layers only: use --router_aux_loss_form micro_batch (or sequence, or global_batch), "
          "or --pp_size 1");
    std::vector<at::Tensor> probabilities, ids;
    for (const Layer& layer : layers_) {
      probabilities.push_back(layer.routing.probabilities);
      ids.push_back(layer.routing.ids);
    }
    return nn::load_balancing_loss(probabilities, ids);
  }
  at::Tensor sum;
  for (const Layer& layer : layers_) {
    const at::Tensor &p = layer.routing.probabilities, &ids = layer.routing.ids;
    at::Tensor loss;
    if (options_.form == BalanceOptions::Form::micro_batch) {
      loss = nn::switch_loss(p, ids);
    } else if (options_.form == BalanceOptions::Form::sequence) {
      loss = nn::sequence_loss(p.view({layer.rows, -1, p.size(1)}), ids.view({layer.rows, -1, ids.size(1)}));
    } else {
      at::Tensor counts = totals_->load.at(layer.block).to(at::kDouble);
      if (options_.sum) counts = options_.sum(counts);
      loss = nn::switch_loss(p, counts, counts.sum().item<double>());
    }
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

at::Tensor RouterLog::finished(const at::Tensor& x) {
  closed_ = true;
  if (layers_.empty()) return x;
  ++totals_->passes;
  for (const Layer& layer : layers_) {
    const at::Tensor counts = nn::expert_counts(layer.routing.ids, options_.experts);
    at::Tensor& load = totals_->load[layer.block];
    load = load.defined() ? load + counts : counts;
  }
  at::Tensor y = x;
  if (options_.auxiliary > 0) {
    const at::Tensor loss = auxiliary_loss();
    totals_->auxiliary_loss += loss.item<double>();
    y = nn::with_loss(y, loss, options_.auxiliary * scale_);
  }
  if (options_.z > 0) {
    at::Tensor loss;
    for (const Layer& layer : layers_) {
      const at::Tensor own = nn::z_loss(layer.routing.logits);
      loss = loss.defined() ? loss + own : own;
    }
    totals_->z_loss += loss.item<double>();
    y = nn::with_loss(y, loss, options_.z * scale_);
  }
  layers_.clear();
  return y;
}

}  // namespace tessera::models
