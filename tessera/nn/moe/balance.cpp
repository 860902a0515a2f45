#include <tessera/nn/moe/balance.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct WithLoss : torch::autograd::Function<WithLoss> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& loss, double scale) {
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["like"] = at::empty({0}, loss.options());
    return x;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    return {gradients[0],
            at::full({}, ctx->saved_data["scale"].toDouble(), ctx->saved_data["like"].toTensor().options()),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor expert_counts(const at::Tensor& ids, std::int64_t experts, const at::Tensor& mask) {
  TESSERA_CHECK(ids.scalar_type() == at::kLong && ids.dim() >= 1, "the tokens' expert ids must be int64 [..., k]");
  at::Tensor counted = ids;
  if (mask.defined()) counted = counted.masked_fill(mask.logical_not().unsqueeze(-1), -1);
  const at::Tensor flat = (counted + 1).reshape({-1});
  if (flat.is_cpu()) return at::bincount(flat, {}, experts + 1).slice(0, 1);
  // On a device, bincount would wait for the largest number, which determines the size of its result.
  return at::zeros({experts + 1}, flat.options()).scatter_add_(0, flat, at::ones_like(flat)).slice(0, 1);
}

at::Tensor load_balancing_loss(const std::vector<at::Tensor>& probabilities, const std::vector<at::Tensor>& ids,
                               const at::Tensor& mask) {
  TESSERA_CHECK(!probabilities.empty() && probabilities.size() == ids.size(), "probabilities of ", probabilities.size(),
                " layers, but experts of ", ids.size());
  const std::int64_t experts = probabilities[0].size(-1);
  at::Tensor counts, sums;
  for (std::size_t layer = 0; layer < ids.size(); ++layer) {
    const at::Tensor c = expert_counts(ids[layer], experts, mask);
    const at::Tensor p = mask.defined() ? probabilities[layer] * mask.unsqueeze(-1) : probabilities[layer];
    counts = layer == 0 ? c : counts + c;
    sums = layer == 0 ? p.sum(0) : sums + p.sum(0);
  }
  const double tokens = static_cast<double>(ids.size()) *
                        (mask.defined() ? mask.sum().item<double>() : static_cast<double>(ids[0].size(0)));
  return (counts.to(sums.scalar_type()) * sums).sum() * (static_cast<double>(experts) / (tokens * tokens));
}

at::Tensor switch_loss(const at::Tensor& probabilities, const at::Tensor& counts, double slots) {
  const auto experts = static_cast<double>(probabilities.size(-1)), tokens = static_cast<double>(probabilities.size(0));
  TESSERA_CHECK(probabilities.dim() == 2 && counts.dim() == 1 && counts.size(0) == probabilities.size(1), "counts ",
                c10::str(counts.sizes()), " for probabilities ", c10::str(probabilities.sizes()));
  if (tokens == 0) return probabilities.sum();  // 0
  return (counts.to(probabilities.scalar_type()) * probabilities.sum(0)).sum() * (experts / (slots * tokens));
}

at::Tensor switch_loss(const at::Tensor& probabilities, const at::Tensor& ids, const SumOver& sum) {
  const at::Tensor counts = expert_counts(ids, probabilities.size(-1));
  if (!sum) return switch_loss(probabilities, counts, static_cast<double>(ids.numel()));
  const at::Tensor all =
      sum(at::cat({counts, at::scalar_tensor(ids.numel(), counts.options()).view({1})}).to(at::kDouble));
  return switch_loss(probabilities, all.slice(0, 0, counts.size(0)), all[counts.size(0)].item<double>());
}

at::Tensor sequence_loss(const at::Tensor& probabilities, const at::Tensor& ids) {
  TESSERA_CHECK(probabilities.dim() == 3 && ids.dim() == 3 && probabilities.size(0) == ids.size(0) &&
                    probabilities.size(1) == ids.size(1),
                "probabilities ", c10::str(probabilities.sizes()), " and experts ", c10::str(ids.sizes()),
                "; they must be [B, T, E] and [B, T, k]");
  const std::int64_t experts = probabilities.size(2), rows = ids.size(0);
  const at::Tensor of_row = at::arange(rows, ids.options()).view({-1, 1, 1}) * experts;
  const at::Tensor counts = expert_counts((ids + of_row).view({-1, ids.size(2)}), rows * experts).view({rows, experts});
  const at::Tensor f = counts.to(probabilities.scalar_type()) / static_cast<double>(ids.size(1) * ids.size(2));
  return (f * probabilities.mean(1)).sum(1).mean() * static_cast<double>(experts);
}

at::Tensor z_loss(const at::Tensor& logits) {
  if (logits.size(0) == 0) return logits.sum();  // 0
  return logits.logsumexp(-1).square().mean();
}

void update_bias(at::Tensor bias, const at::Tensor& counts, double rate, const SumOver& sum) {
  const at::NoGradGuard no_grad;
  const at::Tensor load = (sum ? sum(counts.to(at::kDouble)) : counts.to(at::kDouble));
  bias.add_((load.mean() - load).sign().to(bias.options()), rate);
}

at::Tensor with_loss(const at::Tensor& x, const at::Tensor& loss, double scale) {
  return WithLoss::apply(x, loss, scale);
}

}  // namespace tessera::nn
