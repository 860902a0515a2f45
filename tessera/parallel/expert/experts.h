#pragma once
/// \file
/// parallel/expert/: mixture of experts with experts on several ranks (expert parallelism; GShard, Lepikhin et al.
/// 2020; Megatron-LM's all-to-all dispatcher). Of n ranks, rank r holds experts [r E / n, (r + 1) E / n) of every
/// layer; every rank has its own tokens and all other parameters.
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
/// Steps of a layer: rows are sorted by expert; the ranks exchange row counts (n x E / n numbers); rows are sent
/// (all-to-all) and sorted by the local experts; the products run; results return the same way; every token adds the
/// results of its experts in the order in which its router chose them. The sums therefore equal those of one process,
/// whichever rank has an expert. Backward runs the same steps in reverse.

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

/// The ranks of experts. Under tensor parallelism experts have their own grid over the same ranks (Megatron-LM's
/// folding): an expert may be cut over as many ranks as attention, over fewer, or not at all.
struct ExpertRanks {
  /// ep x etp: the ranks that together hold all experts; each consecutive `parts` of them hold the same experts.
  comm::Group experts;
  int parts = 1;            ///< etp: each of these ranks has 1 / parts of the experts' width; divides tp
  comm::Group tensor = {};  ///< tp, consecutive among `experts`: the ranks with the same rows; empty: one rank
};

/// The experts of this rank. Throws InputError when they cannot be divided evenly.
layout::Range own_experts(std::int64_t experts, const comm::Group& group);
layout::Range own_experts(std::int64_t experts, const ExpertRanks& ranks);
/// The experts of all tp ranks together, for keep_experts(), so that tp ranks have the same parameters. Experts of
/// other ranks have an empty part here (place_experts).
layout::Range held_experts(std::int64_t experts, const ExpertRanks& ranks);

/// The number of the expert that a parameter belongs to; nullopt if none.
using ExpertOf = std::function<std::optional<std::int64_t>(const std::string& parameter)>;
/// Returns `plan` with a separate rule for each expert parameter among `parameters`: the expert's tp ranks cut it
/// according to its rule in the plan, and the others hold none of it. Returns the plan unchanged if all tp ranks cut
/// every expert.
layout::TensorPlan place_experts(const layout::TensorPlan& plan, const std::vector<std::string>& parameters,
                                 const ExpertOf& expert_of, std::int64_t experts, const ExpertRanks& ranks);

/// Whether a parameter of a module that contains tessera::Experts (layer.h) belongs to an expert:
/// "moe.experts.3.up_proj.weight". Our own models provide this themselves (models::LanguageModel::expert_of).
bool is_expert_parameter(const std::string& name);

/// The argument of models::LanguageModel::set_experts() for experts that are whole on the ranks of `group`. Each call,
/// and its backward, is collective over `group`: all ranks make the same calls in the same order, with or without
/// tokens (N = 0). Bytes that a rank sends per call, for N k slots of which s go to other ranks: 4 s C forward, plus
/// the results of the rows it received; the same again in backward; and 8 E bytes of counts. Any rank may receive all
/// tokens of all ranks, and then needs memory for their rows. Throws Error when the given experts are not this rank's.
///
/// `per_source` (one source per rank): fixed order. An expert computes for each rank's tokens as it would for them
/// alone, and its gradients for the tokens of ranks 1, 2, ... are stored there, for ShardingOptions::SharedByExperts.
nn::ExpertsFunction expert_parallel(const comm::Group& group,
                                    const c10::intrusive_ptr<nn::SourceGradients>& per_source = {});

/// The same for experts on a grid of ep and etp whose matrices TensorParallel has cut by place_experts(). Each token is
/// computed once within tp: where tp ranks have the same tokens (no sequence parallelism, or a pass without gradients)
/// each sends a share of them to the experts, and the results are gathered; with sequence parallelism the tokens are
/// already divided. A row is sent to each of the `parts` ranks that hold its expert, and the token adds their results.
/// If ep = 1 and all of tp cut every expert, nothing is exchanged: as in a gated MLP, tokens enter columns and sums
/// leave rows (tensor/exchange.h).
nn::ExpertsFunction expert_parallel(const ExpertRanks& ranks);

}  // namespace tessera
