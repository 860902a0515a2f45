#pragma once
/// \file
/// parallel/expert/: mixture of experts whose experts lie on several ranks (expert parallelism; GShard, Lepikhin et al.
/// 2020; Megatron-LM's all-to-all dispatcher). Of n ranks, rank r holds experts [r E / n, (r + 1) E / n) of every
/// layer; every rank has tokens of its own and all other parameters.
///
///   const comm::Group ep = groups.of(Axis::ep), replicas = groups.of(Axis::edp);
///   const layout::Range own = own_experts(E, ep);
///   model->keep_experts(own.begin, own.end - own.begin);
///   model->set_experts(tessera::expert_parallel(ep));
///   tessera::Sharded engine(*model, {.group = replicas,      // the ranks that hold the same experts
///                                    .reduction = comm::Reduction::sum,
///                                    .shared_by_experts = {world.split(lists of ep, "ep gradients"), is_no_expert}});
///   loss.backward();            // gradients are summed over `replicas`, non-expert ones over ep, too
///
/// A layer, in the order of events: rows are copied in the order of their experts; the ranks tell each other how many
/// come (n x E / n numbers); rows travel (all-to-all); what came is put in the order of the experts here; the products;
/// back the same way; every token adds up the results of its experts, in the order in which its router named them. So
/// the sums are those of one process, whatever rank an expert lies on. Backward goes the same way in reverse.

#include <tessera/comm/group.h>
#include <tessera/layout/flat.h>
#include <tessera/layout/tensor_plan.h>
#include <tessera/nn/moe/experts.h>
#include <tessera/nn/moe/source_gradients.h>
#include <tessera/parallel/fully_shard.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// Where experts lie. Beside tensor parallelism they have a grid of their own over the same ranks (Megatron-LM's
/// folding): its ranks cut each expert among them as far as they cut attention, less far, or not at all.
struct ExpertRanks {
  /// ep x etp: the ranks that hold all experts together; of them consecutive `parts` ranks hold the same experts.
  comm::Group experts;
  int parts = 1;            ///< etp: each of these ranks has 1 / parts of the experts' width; it divides tp
  comm::Group tensor = {};  ///< tp, consecutive among `experts`: the ranks that have the same rows; empty: one rank
};

/// The experts of this rank. Throws InputError when the ranks do not divide them.
layout::Range own_experts(std::int64_t experts, const comm::Group& group);
layout::Range own_experts(std::int64_t experts, const ExpertRanks& ranks);
/// Those of all ranks of tp together: what keep_experts() is given, so that ranks of tp have the same parameters. Those
/// of other ranks have an empty part here (place_experts).
layout::Range held_experts(std::int64_t experts, const ExpertRanks& ranks);

/// The expert whose parameter this is, by its number; nothing: it is none's.
using ExpertOf = std::function<std::optional<std::int64_t>(const std::string& parameter)>;
/// `plan` with a rule of its own for each parameter of an expert among `parameters`: its ranks of tp cut it as its rule
/// in the plan says, the others have none of it. The plan itself where all ranks of tp cut every expert.
layout::TensorPlan place_experts(const layout::TensorPlan& plan, const std::vector<std::string>& parameters,
                                 const ExpertOf& expert_of, std::int64_t experts, const ExpertRanks& ranks);

/// Whether a parameter of a module with tessera::Experts in it (layer.h) is an expert's:
/// "moe.experts.3.up_proj.weight". A model of ours says it itself (models::LanguageModel::expert_of).
bool is_expert_parameter(const std::string& name);

/// What models::LanguageModel::set_experts() takes, for experts that lie whole on the ranks of `group`. Each call, and
/// its backward, is collective over `group`: all ranks make the same calls in the same order, with tokens or without
/// (N = 0). Bytes that a rank sends per call, of N k slots of which s go to other ranks: 4 s C forward, and the results
/// of what it got back; the same again in backward; and 8 E bytes of counts. Any rank may get all tokens of all ranks:
/// its memory is that of their rows. Throws Error when the given experts are not this rank's.
///
/// `per_source` (of as many sources as ranks): fixed order. An expert computes for each rank's tokens what it would
/// compute for them alone, and its gradients for the tokens of ranks 1, 2, ... are kept there, for
/// ShardingOptions::SharedByExperts.
nn::ExpertsFunction expert_parallel(const comm::Group& group,
                                    const c10::intrusive_ptr<nn::SourceGradients>& per_source = {});

/// The same for experts that lie on a grid of ep and etp, and whose matrices TensorParallel has cut by place_experts().
/// Ranks of tp compute every token once: where they have the same tokens (no sequence parallelism, or a pass without
/// gradients) each takes a share of them to the experts, and the results are gathered; with sequence parallelism the
/// tokens are divided already. A row travels to each of the `parts` ranks that hold its expert, and their results are
/// added up by the token. Where ep = 1 and all of tp cut every expert nothing is exchanged: as in a gated MLP, tokens
/// enter columns, and sums leave rows (tensor/exchange.h).
nn::ExpertsFunction expert_parallel(const ExpertRanks& ranks);

}  // namespace tessera
