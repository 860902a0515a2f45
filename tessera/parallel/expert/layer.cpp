#include <tessera/parallel/expert/layer.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/moe/balance.h>
#include <tessera/parallel/expert/experts.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>

namespace tessera {
namespace {

/// Initialised as torch::nn::Linear without bias (kaiming_uniform_ with a = sqrt(5)).
at::Tensor drawn(std::int64_t out, std::int64_t in) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return at::empty({out, in}).uniform_(-bound, bound);
}

}  // namespace

ExpertsImpl::ExpertsImpl(ExpertsOptions options) : options_(std::move(options)) {
  const ExpertsOptions& o = options_;
  if (o.hidden < 1 || o.intermediate < 1 || o.experts < 1 || o.top_k < 1 || o.top_k > o.experts)
    throw InputError(concat("Experts: hidden ", o.hidden, ", intermediate ", o.intermediate, ", experts ", o.experts,
                            ", top_k ", o.top_k, ": each must be at least 1, and top_k at most the number of experts"));
  const layout::Range own = o.group ? own_experts(o.experts, o.group) : layout::Range{0, o.experts};
  const auto named = [](torch::nn::Module& parent, const std::string& name, const at::Tensor& weight) {
    return parent.register_module(name, std::make_shared<torch::nn::Module>())->register_parameter("weight", weight);
  };
  router_ = named(*this, "gate", drawn(o.experts, o.hidden));
  const auto list = register_module("experts", std::make_shared<torch::nn::Module>());
  weights_.first = own.begin;
  weights_.total = o.experts;
  for (std::int64_t e = 0; e < o.experts; ++e) {
    const at::Tensor gate = drawn(o.intermediate, o.hidden), up = drawn(o.intermediate, o.hidden),
                     down = drawn(o.hidden, o.intermediate);
    if (e < own.begin || e >= own.end) continue;
    const auto expert = list->register_module(std::to_string(e), std::make_shared<torch::nn::Module>());
    weights_.gate.push_back(named(*expert, "gate_proj", gate));
    weights_.up.push_back(named(*expert, "up_proj", up));
    weights_.down.push_back(named(*expert, "down_proj", down));
  }
  compute_ = o.group ? expert_parallel(o.group) : nn::ExpertsFunction(nn::experts);
}

at::Tensor ExpertsImpl::forward(const at::Tensor& x) {
  if (x.dim() < 1 || x.size(-1) != options_.hidden)
    throw InputError(
        concat("Experts: the input has sizes ", x.sizes(), "; its last dimension must be hidden, ", options_.hidden));
  const at::Tensor rows = x.reshape({-1, options_.hidden});
  const nn::Routing routing =
      nn::route(nn::router_logits(rows, router_),
                {.experts = options_.experts, .top_k = options_.top_k, .normalize = options_.normalize});
  slots_per_expert_ = nn::expert_counts(routing.ids, options_.experts);
  if (at::GradMode::is_enabled()) last_ = routing;
  return compute_(rows, routing, weights_, {}).view(x.sizes());
}

at::Tensor ExpertsImpl::balancing_loss() const {
  if (!last_.ids.defined()) throw InputError("Experts: balancing_loss() needs a forward pass in grad mode first");
  return nn::switch_loss(last_.probabilities, last_.ids);
}

}  // namespace tessera
