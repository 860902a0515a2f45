// Experts under tensor parallelism: cut as attention is, over fewer ranks, or not at all.

#include <tessera/parallel/expert/experts.h>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/nn/moe/permute.h>
#include <tessera/parallel/expert/dispatch.h>
#include <tessera/parallel/tensor/tensor_shard.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tessera {
namespace {

using parallel::Between;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Identity on x; its backward gives empty parameters empty gradients, because gradient reduction waits for every
/// parameter's gradient.
struct WithEmptyParameters : torch::autograd::Function<WithEmptyParameters> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList parameters) {
    ctx->saved_data["parameters"] = static_cast<std::int64_t>(parameters.size());
    std::vector<at::Tensor> likes;
    for (const at::Tensor& p : parameters) likes.push_back(at::empty(p.sizes(), p.options()));
    ctx->save_for_backward(likes);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    variable_list all{gradients[0]};
    for (const at::Tensor& like : ctx->get_saved_variables()) all.push_back(at::empty_like(like));
    return all;
  }
};

/// The index of an expert's parts in the order in which the ranks of `experts` hold them: rank by rank. ids int64 [N,
/// k] -> [N, k parts]; -1 stays.
at::Tensor ids_of_parts(const at::Tensor& ids, std::int64_t each, std::int64_t parts) {
  if (parts == 1) return ids;
  const at::Tensor part = at::arange(parts, ids.options()) * each;                         // [parts]
  const at::Tensor first = ids.div(each, "floor") * (parts * each) + ids.remainder(each);  // [N, k]: of part 0
  return (first.unsqueeze(-1) + part).masked_fill(ids.lt(0).unsqueeze(-1), -1).flatten(1);
}

/// Sends a share of the tokens (or, if already divided, this rank's own) to the ranks of their experts and back.
at::Tensor exchanged_experts(const ExpertRanks& ranks, bool same_tokens, const at::Tensor& x,
                             const nn::Routing& routing, const nn::ExpertWeights& w, const nn::Meanwhile& meanwhile) {
  const auto own_rows = [&](const at::Tensor& rows) {
    return same_tokens ? parallel::own_rows(rows, ranks.tensor) : rows;
  };
  const at::Tensor ids = own_rows(routing.ids), weights = own_rows(routing.weights);
  const std::int64_t each = w.held();
  const at::Tensor y =
      parallel::dispatched_experts(ranks.experts, own_rows(x), ids_of_parts(ids, each, ranks.parts),
                                   ranks.parts == 1 ? weights : weights.repeat_interleave(ranks.parts, 1), w,
                                   {.padded_to = routing.padded_to}, meanwhile);
  return same_tokens ? parallel::all_rows(y, x.size(0), ranks.tensor) : y;
}

/// All tp ranks compute a part of every expert for all of their tokens.
at::Tensor cut_experts(const comm::Group& group, Between between, const at::Tensor& x, const nn::Routing& routing,
                       const nn::ExpertWeights& w, const nn::Meanwhile& meanwhile) {
  if (meanwhile) meanwhile();
  const auto entered = [&](const at::Tensor& rows) {  // rows [N, ...] as one sequence
    return parallel::copy_to_tensor_parallel(rows.unsqueeze(0), group, between).x.squeeze(0);
  };
  at::Tensor ids = routing.ids;
  if (between == Between::own_tokens) {
    const comm::Tag tag("experts of tokens");
    ids = at::empty({group.size() * ids.size(0), ids.size(1)}, ids.options());
    group.all_gather(ids, routing.ids.contiguous()).wait();
  }
  const nn::Permutation permutation = nn::permutation_of(ids, w.total, routing.padded_to, routing.complete);
  const at::Tensor part =
      nn::unpermute(nn::experts_of_permuted(entered(x), permutation, w), permutation, entered(routing.weights));
  return parallel::reduce_from_tensor_parallel(part.unsqueeze(0), group, between).squeeze(0);
}

/// Splits `w` into this rank's experts (returned) and the others (appended to `empty`).
nn::ExpertWeights own_of(const nn::ExpertWeights& w, const layout::Range& own, std::vector<at::Tensor>& empty) {
  nn::ExpertWeights mine;
  mine.first = own.begin;
  mine.total = w.total;
  mine.activation = w.activation;
  for (const auto& [from, to] : {std::pair{&w.gate, &mine.gate}, {&w.up, &mine.up}, {&w.down, &mine.down}})
    for (std::size_t i = 0; i < from->size(); ++i) {
      const std::int64_t expert = w.first + static_cast<std::int64_t>(i);
      (expert >= own.begin && expert < own.end ? *to : empty).push_back((*from)[i]);
    }
  return mine;
}

at::Tensor compute_cut(const ExpertRanks& ranks, const at::Tensor& x, const nn::Routing& routing,
                       const nn::ExpertWeights& given, const nn::Meanwhile& meanwhile) {
  const layout::Range own = own_experts(given.total, ranks), held = held_experts(given.total, ranks);
  const std::int64_t here = given.held();
  TESSERA_CHECK(given.first == held.begin && here == held.end - held.begin, "experts ", given.first, " to ",
                given.first + here - 1, " of ", given.total, " are on this rank, but ", held.begin, " to ",
                held.end - 1, " must be (keep_experts)");
  const parallel::TensorShard* const cut = parallel::cut_of(given.up.front());
  TESSERA_CHECK(cut != nullptr, "experts on tp ranks must be cut by TensorParallel before they are used");
  const Between between = cut->between();
  std::vector<at::Tensor> empty;
  const nn::ExpertWeights w = own_of(given, own, empty);
  // `meanwhile` runs the shared expert, whose matrices are also cut, so it needs the cut key active again.
  const c10::impl::LocalDispatchKeySet before = c10::impl::tls_local_dispatch_key_set();
  const nn::Meanwhile outside = [&] {
    const c10::impl::ForceDispatchKeyGuard as_before(before);
    if (meanwhile) meanwhile();
  };
  const c10::impl::ExcludeDispatchKeyGuard parts_are_meant(nn::cut_key);
  at::Tensor y;
  if (ranks.parts == ranks.experts.size())
    y = cut_experts(ranks.tensor, between, x, routing, w, outside);
  else
    y = exchanged_experts(ranks, between == Between::whole, x, routing, w, outside);
  return empty.empty() ? y : WithEmptyParameters::apply(y, at::TensorList(empty));
}

}  // namespace

layout::Range held_experts(std::int64_t experts, const ExpertRanks& ranks) {
  const layout::Range own = own_experts(experts, ranks);
  if (!ranks.tensor) return own;
  const std::int64_t each = own.end - own.begin, first_rank = ranks.experts.rank() - ranks.tensor.rank();
  const std::int64_t first = first_rank / ranks.parts * each;
  return {first, first + std::max<std::int64_t>(1, ranks.tensor.size() / ranks.parts) * each};
}

layout::TensorPlan place_experts(const layout::TensorPlan& plan, const std::vector<std::string>& parameters,
                                 const ExpertOf& expert_of, std::int64_t experts, const ExpertRanks& ranks) {
  if (!ranks.tensor || ranks.parts == ranks.tensor.size()) return plan;
  const layout::Range own = own_experts(experts, ranks);
  const std::int64_t each = own.end - own.begin;
  const int first_rank = ranks.experts.rank() - ranks.tensor.rank();  // tp's first rank, among `experts`
  layout::TensorPlan placed;
  std::set<std::string> patterns;
  for (const std::string& name : parameters) {
    const std::optional<std::int64_t> expert = expert_of(name);
    if (!expert) continue;
    // "experts.3.up_proj.weight": one rule for all layers, since every parameter is matched against the rules.
    const std::size_t number = name.rfind(concat(".", *expert, "."));
    TESSERA_CHECK(number != std::string::npos, name, " does not contain the number of its expert, ", *expert);
    const std::string pattern = name.substr(name.rfind('.', number - 1) + 1);
    if (!patterns.insert(pattern).second) continue;
    const auto rule =
        std::ranges::find_if(plan, [&](const layout::TensorRule& one) { return layout::matches(one.pattern, name); });
    TESSERA_CHECK(rule != plan.end(), "no rule specifies how ", name, " is cut");
    layout::TensorRule& own_rule = placed.emplace_back(*rule);
    own_rule.pattern = pattern;
    own_rule.first_holder = static_cast<int>(*expert / each) * ranks.parts - first_rank;
    own_rule.holders = ranks.parts;
  }
  for (const layout::TensorRule& rule : plan)
    if (std::ranges::any_of(parameters, [&](const std::string& name) {
          return !expert_of(name) && layout::matches(rule.pattern, name);
        }))
      placed.push_back(rule);
  return placed;
}

nn::ExpertsFunction expert_parallel(const ExpertRanks& ranks) {
  if (!ranks.tensor || ranks.tensor.size() == 1) return expert_parallel(ranks.experts);
  TESSERA_CHECK(ranks.tensor.size() % ranks.parts == 0 && ranks.experts.size() % ranks.tensor.size() == 0,
                "experts on ", ranks.experts.size(), " ranks, ", ranks.parts, " for each, with tp of ",
                ranks.tensor.size());
  return [ranks](const at::Tensor& x, const nn::Routing& routing, const nn::ExpertWeights& weights,
                 const nn::Meanwhile& meanwhile) { return compute_cut(ranks, x, routing, weights, meanwhile); };
}

}  // namespace tessera
