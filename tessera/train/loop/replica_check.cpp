#include <tessera/train/loop/replica_check.h>

#include <set>
#include <string>

#include <tessera/base/error.h>
#include <tessera/comm/run_on_all_ranks.h>

namespace tessera::train {

ReplicaCheck::ReplicaCheck(const Setup& setup, comm::World& world, ParallelModel& model, RunClock& clock)
    : setup_(setup),
      world_(world),
      model_(model),
      clock_(clock),
      every_(world.size() > 1 ? setup.config.output.check_replicas_steps : 0),
      equal_at_(setup.plan.resumed_step) {}

void ReplicaCheck::after_step(std::int64_t step) {
  if (every_ > 0 && step % every_ == 0) before_save(step);
}

void ReplicaCheck::before_save(std::int64_t step) {
  if (every_ <= 0 || step == equal_at_) return;
  clock_.enter(Phase::other, "check replicas");
  // Groups without differences wait here for groups with differences, because the second comparison uses different
  // groups.
  const auto compare = [&](const auto& check) {
    run_on_all_ranks(world_.group(), [&] {
      try {
        check();
      } catch (const parallel::ReplicasDiffer& error) {
        throw Error(concat("after step ", step, ": ", error.what(), ". They were equal after step ", equal_at_,
                           ", and every checkpoint of this run was compared before it was written: resume from the ",
                           "newest (--resume_from_checkpoint last)"));
      }
    });
  };
  compare([&] { model_.sharded().check_replicas(); });
  if (model_.tensor)
    compare([&] { parallel::require_same_bits(setup_.groups.tensor, whole_on_tensor_ranks(), "parameter"); });
  equal_at_ = step;
  clock_.enter(Phase::other);
}

/// Parameters that every rank of tp holds whole (norms, positions, biases of rows), gathered from shards. Collective.
std::vector<parallel::NamedTensor> ReplicaCheck::whole_on_tensor_ranks() {
  std::set<std::string> parts;
  for (const TensorParallelParameter& part : model_.tensor->parameters()) parts.insert(part.name);
  std::vector<parallel::NamedTensor> whole;
  for (const ShardedParameter& p : model_.sharded().named_parameters())
    if (!parts.contains(p.name)) whole.push_back({p.name, model_.sharded().gather_like(p, p.local.detach())});
  return whole;
}

}  // namespace tessera::train
