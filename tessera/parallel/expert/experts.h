#pragma once
/// \file
/// parallel/expert/: mixture of experts whose experts lie on several ranks (expert parallelism; GShard, Lepikhin et al.
/// 2020; Megatron-LM's all-to-all dispatcher). Of n ranks, rank r holds experts [r E / n, (r + 1) E / n) of every
/// layer; every rank has tokens of its own and all other parameters.
///
///   const comm::Group ep = groups.of(Axis::ep), copies = groups.of(Axis::edp);
///   const layout::Range own = own_experts(E, ep);
///   model->keep_experts(own.begin, own.end - own.begin);
///   model->set_experts(tessera::expert_parallel(ep));
///   tessera::Sharded engine(*model, {.group = copies,        // the ranks that hold the same experts
///                                    .reduction = comm::Reduction::sum,
///                                    .shared_beyond = {world.split(lists of ep, "ep gradients"), is_no_expert}});
///   loss.backward();            // gradients are summed: over `copies`, and what all ranks of ep hold over these, too
///
/// A layer, in the order of events: rows are copied in the order of their experts; the ranks tell each other how many
/// come (n x E / n numbers); rows travel (all-to-all); what came is put in the order of the experts here; the products;
/// back the same way; every token adds up the results of its experts, in the order in which its router named them. So
/// the sums are those of one process, whatever rank an expert lies on. Backward goes the same way in reverse.

#include <tessera/comm/group.h>
#include <tessera/layout/flat.h>
#include <tessera/nn/moe/experts.h>
#include <tessera/parallel/fully_shard.h>

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

/// The experts of this rank. Throws InputError when the ranks of `group` do not divide them.
layout::Range own_experts(std::int64_t experts, const comm::Group& group);

/// Whether a parameter of our families is of an expert: "model.layers.0.mlp.experts.3.up_proj.weight".
bool is_expert_parameter(const std::string& name);

/// What models::LanguageModel::set_experts() takes. Each call, and its backward, is collective over `group`: all ranks
/// make the same calls in the same order, with tokens or without (N = 0). Bytes that a rank sends per call, of N k
/// slots of which s go to other ranks: 4 s C forward, and the results of what it got back; the same again in backward;
/// and 8 E bytes of counts. Any rank may get all tokens of all ranks: its memory is that of their rows. Throws Error
/// when the given experts are not this rank's.
nn::ExpertsFunction expert_parallel(const comm::Group& group);

}  // namespace tessera
