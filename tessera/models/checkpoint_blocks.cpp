#include <tessera/models/checkpoint_blocks.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <utility>

namespace tessera::models {
namespace {

parallel::CheckpointPart part_of(const ModelPart& part) {
  switch (part.kind) {
    case ModelPart::Kind::attention:
      return parallel::CheckpointPart::attention;
    case ModelPart::Kind::mlp:
      return parallel::CheckpointPart::mlp;
    case ModelPart::Kind::block:
      break;
  }
  return parallel::CheckpointPart::block;
}

}  // namespace

std::shared_ptr<const parallel::ActivationCheckpointing> checkpoint_blocks(LanguageModel& model,
                                                                           const parallel::CheckpointPlan& plan) {
  const auto checkpointing = std::make_shared<const parallel::ActivationCheckpointing>(plan);
  const std::vector<ModelPart> parts = model.parts();
  const bool any = std::any_of(parts.begin(), parts.end(), [&](const ModelPart& part) {
    return checkpointing->chooses(part.name, part.block, part_of(part));
  });
  if (!any) {
    std::string names;
    for (const ModelPart& part : parts)
      if (part.block == 0 && part_of(part) == plan.part) names = part.name;
    throw InputError(concat("gradient checkpointing selects nothing: no ", names.empty() ? "part" : "name",
                            " of the model's ", "matches the regular expression '", plan.names, "'",
                            names.empty() ? std::string() : concat("; the first one is ", names)));
  }
  model.set_part_runner(part_runner_of(checkpointing));
  return checkpointing;
}

PartRunner part_runner_of(std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing) {
  return [checkpointing = std::move(checkpointing)](const ModelPart& part, const PartFunction& function,
                                                    const at::Tensor& x) {
    return checkpointing ? checkpointing->run(part.name, part.block, part_of(part), function, x) : function(x);
  };
}

void keep_activations(LanguageModel& model) { model.set_part_runner(nullptr); }

}  // namespace tessera::models
