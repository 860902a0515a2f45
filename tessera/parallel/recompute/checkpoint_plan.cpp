#include <tessera/parallel/recompute/checkpoint_plan.h>

#include <tessera/base/error.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>

#include <optional>

namespace tessera::parallel {

ActivationCheckpointing::ActivationCheckpointing(const CheckpointPlan& plan)
    : plan_(plan),
      names_("gradient checkpointing: names", plan.names),
      offload_(plan.offload_inputs_to.empty() ? nullptr : offload_policy({.to = plan.offload_inputs_to})) {
  if (plan.every < 1)
    throw InputError(
        concat("gradient checkpointing: every ", plan.every, "-th block is selected; the number must be at least 1"));
}

bool ActivationCheckpointing::chooses(const std::string& name, std::int64_t block, CheckpointPart part) const {
  return part == plan_.part && block % plan_.every == 0 && (plan_.names.empty() || names_.fits(name));
}

at::Tensor ActivationCheckpointing::run(const std::string& name, std::int64_t block, CheckpointPart part,
                                        const std::function<at::Tensor(const at::Tensor&)>& f,
                                        const at::Tensor& x) const {
  if (!chooses(name, block, part)) return f(x);
  // The region's own policy handles everything that it saves; this one handles the region's input.
  std::optional<SavedTensors> offload;
  if (offload_) offload.emplace(offload_);
  return checkpointed({.name = name, .preserve_random = plan_.preserve_random, .early_stop = plan_.early_stop}, f, x);
}

SavedBytes ActivationCheckpointing::offloaded() const { return offload_ ? offload_->bytes() : SavedBytes{}; }

}  // namespace tessera::parallel
