#include <tessera/parallel/sharding/check_options.h>

#include <tessera/base/error.h>

namespace tessera::parallel {
namespace {

void check_values(const ShardingOptions& o, const comm::Group& group) {
  if (o.reduction != comm::Reduction::mean && o.reduction != comm::Reduction::sum)
    throw InputError("sharding: gradients can be reduced by mean or sum only, not by min, max or product");
  if (!(o.first_bucket_mb > 0) || !(o.bucket_mb > 0))
    throw InputError(concat("sharding: first_bucket_mb = ", o.first_bucket_mb, ", bucket_mb = ", o.bucket_mb,
                            "; both must be above 0"));
  if (!(o.gradient_predivide_factor > 0))
    throw InputError(concat("sharding: gradient_predivide_factor = ", o.gradient_predivide_factor, " must be above 0"));
  if (o.logical_shards < 0 || (o.logical_shards > 0 && o.logical_shards % group.size() != 0))
    throw InputError(concat("data parallelism: logical_shards = ", o.logical_shards,
                            ": a step's micro-batches are not divisible by the ", group.size(), " ranks of group '",
                            group.name(), "'; use a multiple of every number of ranks that the run may use"));
}

/// Options that contradict each other under any strategy.
void check_pairs(const ShardingOptions& o, const comm::Group& group) {
  if (o.compression && o.logical_shards > 0)
    throw InputError("sharding: compressed gradients have no fixed order; remove logical_shards or compression");
  if (o.compression && o.reduce_dtype)
    throw InputError("sharding: compression and reduce_dtype both set the format on the wire; remove one of them");
  if (o.gradient_predivide_factor != 1 && o.logical_shards > 0)
    throw InputError(concat("sharding: gradient_predivide_factor = ", o.gradient_predivide_factor,
                            " with logical_shards: dividing before and multiplying after the sums would round them, "
                            "differently for every number of ranks; remove one of the two"));
  if (!o.held_by_earlier_stage.empty() && (!o.stages || o.stages.rank() == 0))
    throw InputError(concat("sharding: held_by_earlier_stage names '", o.held_by_earlier_stage.front(),
                            "', but this is the first stage or stages is not set; set stages, or remove the names"));
  if (o.shared_by_experts.ranks && o.shared_by_experts.ranks.size() > 1) {
    const int expert_replicas = o.shared_by_experts.ranks.size();
    constexpr const char* what = "sharding: shared_by_experts (parameters that ranks outside of the group also hold) ";
    if (!o.shared_by_experts.has)
      throw InputError(concat(what, "does not specify these parameters; set shared_by_experts.has"));
    if (o.reduction != comm::Reduction::sum)
      throw InputError(
          concat(what,
                 "needs reduction = sum: gradients of unshared parameters already contain terms of the "
                 "other ranks' losses, so a mean over the group would weigh the two kinds differently; divide "
                 "the loss by the number of all ranks"));
    if (o.compression) throw InputError(concat(what, "cannot be combined with compression; remove one of the two"));
    if (o.logical_shards > 0 &&
        (!o.shared_by_experts.per_source || o.shared_by_experts.per_source->sources() != expert_replicas))
      throw InputError(concat(what, "with logical_shards needs the other parameters' gradients per rank: set ",
                              "shared_by_experts.per_source with ", expert_replicas, " sources"));
    if (o.logical_shards % (group.size() * expert_replicas) != 0)
      throw InputError(concat("data parallelism: logical_shards = ", o.logical_shards,
                              ": a step's micro-batches are not divisible by the ", group.size(), " ranks of group '",
                              group.name(), "' times the ", expert_replicas, " of '", o.shared_by_experts.ranks.name(),
                              "'"));
  }
  if (!o.offload_folder.empty() && o.offload == Offload::none)
    throw InputError(concat("sharding: offload_folder = '", o.offload_folder,
                            "', but nothing is offloaded; set offload, or remove the folder"));
}

}  // namespace

void check_options(const ShardingOptions& o, const comm::Group& group) {
  const StrategyRow& strategy = row_of(o.strategy);
  check_values(o, group);
  check_pairs(o, group);
  const auto refuse = [&](bool set, const char* option, const char* why, const char* remedy) {
    if (set)
      throw InputError(concat("sharding: ", option, " has no effect under strategy '", word_of<Strategy>(o.strategy),
                              "': ", why, "; ", remedy));
  };
  constexpr const char* nothing_sharded = "it shards nothing, so nothing is gathered";
  constexpr const char* whole = "it keeps the parameters whole between steps";
  constexpr const char* kept = "the parameters gathered in forward are kept for backward";
  constexpr const char* leave_out = "remove it, or choose a strategy that shards parameters (full_shard)";
  if (strategy.shard_group == ShardGroup::none) {
    refuse(o.shard_group_size > 1, "shard_group_size", "it shards nothing", "use hybrid_shard for groups that shard");
    refuse(o.reduce_dtype && o.reduce_dtype != at::kBFloat16 && o.reduce_dtype != at::kHalf, "this reduce_dtype",
           "whole gradients are reduced in the type of their parameters", "use bfloat16 or float16, or remove it");
    refuse(o.reduce_dtype && o.logical_shards > 0, "reduce_dtype with logical_shards",
           "in fixed order whole gradients are added unconverted", "remove one of the two");
    refuse(!o.forward_prefetch, "forward_prefetch = false", nothing_sharded, leave_out);
    refuse(!o.limit_all_gathers, "limit_all_gathers = false", nothing_sharded, leave_out);
  }
  if (strategy.shard_parameters) {
    constexpr const char* by_unit = "the gradients of a unit are reduced together";
    constexpr const char* choose_units = "choose the units with wrap instead";
    const ShardingOptions standard;
    refuse(o.first_bucket_mb != standard.first_bucket_mb, "first_bucket_mb", by_unit, choose_units);
    refuse(o.bucket_mb != standard.bucket_mb, "bucket_mb", by_unit, choose_units);
  } else {
    refuse(!o.wrap.ignored_modules.empty(), "wrap with ignored_modules", whole,
           "freeze the modules that must not be trained");
    refuse(o.reshard_after_forward == true, "reshard_after_forward = true", whole, leave_out);
    refuse(o.persistence_threshold > 0, "persistence_threshold", whole, leave_out);
    refuse(o.offload == Offload::params || o.offload == Offload::all, "offload of the parameters", whole,
           "offload the optimizer (Offload::optimizer), or choose a strategy that shards parameters (full_shard)");
  }
  if (!strategy.shard_parameters || !o.reshard_after_forward.value_or(strategy.reshard_after_forward)) {
    const char* why = strategy.shard_parameters ? kept : whole;
    const char* remedy = strategy.shard_parameters ? "set reshard_after_forward, or remove it" : leave_out;
    refuse(o.backward_prefetch != layout::BackwardPrefetch::pre, "backward_prefetch", why, remedy);
    refuse(o.reshard_root, "reshard_root", why, remedy);
  }
}

}  // namespace tessera::parallel
