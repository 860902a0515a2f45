#include <tessera/models/moe_mlp.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/models/kept_parts.h>
#include <tessera/nn/moe/sinkhorn.h>

#include <utility>

namespace tessera::models {

Router::Router(std::int64_t experts, std::int64_t hidden, bool with_bias) {
  weight = register_parameter("weight", at::empty({experts, hidden}));
  if (with_bias)
    e_score_correction_bias =
        register_parameter("e_score_correction_bias", at::empty({experts}), /*requires_grad=*/false);
}

Expert::Expert(const architectures::ModelSpec& spec) {
  const architectures::Experts& e = *spec.experts;
  if (spec.gated) gate = register_module(e.gate_name, std::make_shared<Table>(e.inner, spec.hidden));
  up = register_module(e.up_name, std::make_shared<Table>(e.inner, spec.hidden));
  down = register_module(e.down_name, std::make_shared<Table>(spec.hidden, e.inner));
}

namespace {

nn::RouterOptions router_of(const architectures::Experts& e) {
  const bool sigmoid = e.scoring == architectures::Experts::Scoring::sigmoid;
  return {.experts = e.count,
          .top_k = e.top_k,
          .scoring = sigmoid ? nn::RouterOptions::Scoring::sigmoid : nn::RouterOptions::Scoring::softmax,
          .softmax_after_top_k = e.softmax_after_top_k,
          .normalize = e.normalize,
          .sinkhorn = e.sinkhorn,
          .groups = e.groups,
          .top_groups = e.top_groups,
          .group_best = e.group_best,
          .scale = e.scale};
}

}  // namespace

MoeMlp::MoeMlp(const architectures::ModelSpec& spec, std::int64_t index)
    : options(router_of(*spec.experts)),
      activation(activation_of(spec.activation)),
      index(index),
      jitter(spec.experts->jitter) {
  const architectures::Experts& e = *spec.experts;
  gate = register_module("gate", std::make_shared<Router>(e.count, spec.hidden, e.selection_bias));
  const auto list = register_module("experts", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < e.count; ++i)
    experts.push_back(list->register_module(std::to_string(i), std::make_shared<Expert>(spec)));
  const auto share = [&]<class Kind>(std::shared_ptr<Kind> made) {
    shared_expert = register_module(e.shared_name, std::move(made));
  };
  if (e.shared_inner > 0 && spec.gated) share(std::make_shared<GatedMlp>(spec.hidden, e.shared_inner, false));
  if (e.shared_inner > 0 && !spec.gated)
    share(std::make_shared<PlainMlp>(spec.hidden, e.shared_inner, false, activation, e.up_name, e.down_name));
  if (e.shared_gate)
    shared_expert_gate = register_module("shared_expert_gate", std::make_shared<Linear>(spec.hidden, 1, false));
}

void MoeMlp::keep_experts(std::int64_t first, std::int64_t count) {
  const auto list = named_children()["experts"];
  for (std::int64_t e = 0; e < options.experts; ++e)
    if (auto& expert = experts[static_cast<std::size_t>(e)]; expert && (e < first || e >= first + count))
      drop(*list, std::to_string(e), expert);
}

nn::ExpertWeights MoeMlp::weights() const {
  nn::ExpertWeights all;
  all.total = options.experts;
  all.activation = activation;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    if (!experts[e]) continue;
    if (all.up.empty()) all.first = static_cast<std::int64_t>(e);
    if (experts[e]->gate) all.gate.push_back(experts[e]->gate->weight);
    all.up.push_back(experts[e]->up->weight);
    all.down.push_back(experts[e]->down->weight);
  }
  return all;
}

at::Tensor MoeMlp::forward(const at::Tensor& given, const ForwardContext& context) {
  at::Tensor x = given;  // [B, T, C]
  if (is_training() && jitter > 0)
    x = nn::jittered(x, jitter, context.between_layers(ForwardContext::Draw::router, index));
  const at::Tensor logits = nn::router_logits(x, gate->weight);
  at::Tensor choose_by;
  if (is_training() && options.sinkhorn)
    choose_by = context.routers ? context.routers->sinkhorn(logits) : nn::sinkhorn(logits);
  nn::Routing routing = nn::route(logits, options, gate->e_score_correction_bias, choose_by);
  if (context.routers) {
    context.routers->add(index, routing, x.size(0));
    routing = context.routers->within_capacity(routing, x.size(0), context.between_layers());
  }
  at::Tensor shared;
  nn::Meanwhile meanwhile;
  if (shared_expert)
    meanwhile = [&] {
      shared = shared_expert->forward(x, context);
      if (shared_expert_gate) shared = shared_expert_gate->forward(x, context.between_layers()).sigmoid() * shared;
    };
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::Tensor y = (context.experts ? (*context.experts)(rows, routing, weights(), meanwhile)
                                        : nn::experts(rows, routing, weights(), meanwhile))
                           .view(x.sizes());
  if (!shared_expert) return y;
  if (!shared.defined()) meanwhile();  // not called yet: the function that computed the experts ignores it
  return y + shared;
}

}  // namespace tessera::models
