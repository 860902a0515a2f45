#include <tessera/nn/moe/router.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/linear.h>

#include <limits>
#include <optional>

namespace tessera::nn {
namespace {

/// Turns autocast off on one kind of device during its lifetime.
class FullPrecision {
 public:
  explicit FullPrecision(c10::DeviceType device)
      : device_(device), was_(libtorch_autocast_type(device).has_value()), rounding_(rounding()) {
    at::autocast::set_autocast_enabled(device_, false);
    set_rounding({});
  }
  ~FullPrecision() {
    at::autocast::set_autocast_enabled(device_, was_);
    set_rounding(rounding_);
  }
  FullPrecision(const FullPrecision&) = delete;
  FullPrecision& operator=(const FullPrecision&) = delete;

 private:
  c10::DeviceType device_;
  bool was_;
  std::optional<at::ScalarType> rounding_;
};

/// Sets the scores of experts outside of the best groups to -infinity.
at::Tensor within_best_groups(const at::Tensor& scores, const RouterOptions& o) {
  const std::int64_t each = o.experts / o.groups;
  const at::Tensor by_group = scores.view({-1, o.groups, each});
  const at::Tensor group_scores = std::get<0>(by_group.topk(o.group_best, -1)).sum(-1);  // [N, groups]
  const at::Tensor best = std::get<1>(group_scores.topk(o.top_groups, -1));
  const at::Tensor outside = at::ones_like(group_scores, at::kBool).scatter_(1, best, false);
  return by_group.masked_fill(outside.unsqueeze(-1), -std::numeric_limits<double>::infinity()).view_as(scores);
}

void check(const at::Tensor& logits, const RouterOptions& o, const at::Tensor& bias) {
  TESSERA_CHECK(logits.dim() == 2 && logits.size(1) == o.experts, "logits ", c10::str(logits.sizes()), " for ",
                o.experts, " experts; they must be [N, experts]");
  TESSERA_CHECK(o.top_k >= 1 && o.top_k <= o.experts, o.top_k, " of ", o.experts, " experts per token");
  TESSERA_CHECK(!(o.softmax_after_top_k && o.scoring == RouterOptions::Scoring::sigmoid),
                "softmax_after_top_k cannot be combined with sigmoid scores");
  TESSERA_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == o.experts), "selection bias ",
                c10::str(bias.sizes()), " for ", o.experts, " experts");
  if (o.groups == 1) return;
  TESSERA_CHECK(o.groups > 1 && o.experts % o.groups == 0, o.experts, " experts in ", o.groups, " equal groups");
  const std::int64_t each = o.experts / o.groups;
  TESSERA_CHECK(o.top_groups >= 1 && o.top_groups <= o.groups, o.top_groups, " of ", o.groups, " groups of experts");
  TESSERA_CHECK(o.group_best >= 1 && o.group_best <= each, "a group's score from ", o.group_best, " of its ", each,
                " experts");
  TESSERA_CHECK(o.top_k <= o.top_groups * each, o.top_k, " experts per token from ", o.top_groups, " groups of ", each);
}

}  // namespace

at::Tensor router_logits(const at::Tensor& x, const at::Tensor& weight) {
  const FullPrecision scope(x.device().type());
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor rows = x.reshape({-1, x.size(-1)}).to(type);
  return linear(rows, weight.scalar_type() == type ? weight : weight.to(type), {}, WeightLayout::out_in);
}

Routing route(const at::Tensor& logits, const RouterOptions& o, const at::Tensor& bias, const at::Tensor& choose_by) {
  check(logits, o, bias);
  const bool sigmoid = o.scoring == RouterOptions::Scoring::sigmoid;
  Routing routing;
  routing.logits = logits;
  const at::Tensor scores = sigmoid ? logits.sigmoid() : logits.softmax(-1);
  routing.probabilities = sigmoid ? scores / (scores.sum(-1, true) + 1e-20) : scores;
  const at::Tensor& ranked = o.softmax_after_top_k ? logits : scores;
  {
    const at::NoGradGuard no_grad;
    at::Tensor choice = choose_by.defined() ? choose_by : ranked.detach();
    if (bias.defined()) choice = choice + bias.to(choice.scalar_type());
    if (o.groups > 1) choice = within_best_groups(choice, o);
    routing.ids = std::get<1>(choice.topk(o.top_k, -1));
    routing.complete = true;
  }
  at::Tensor weights = ranked.gather(1, routing.ids);
  if (o.softmax_after_top_k) weights = weights.softmax(-1);
  if (o.normalize) weights = weights / (weights.sum(-1, true) + (sigmoid ? 1e-20 : 0));
  routing.weights = o.scale == 1 ? weights : weights * o.scale;
  return routing;
}

at::Tensor jittered(const at::Tensor& x, double amount, const RandomPlace& place) {
  TESSERA_CHECK(amount >= 0 && amount < 1, "router jitter of ", amount, "; it must be in [0, 1)");
  const at::Tensor noise = uniform(x.size(0), x.size(1), x.size(2), place, x.device());
  return x * noise.mul_(2 * amount).add_(1 - amount).to(x.options());
}

}  // namespace tessera::nn
