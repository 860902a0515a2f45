#include <tessera/models/checkpoint_blocks.h>

#include <tessera/base/error.h>

#include <algorithm>

namespace tessera::models {
namespace {

parallel::CheckpointPart part_of(const Region& region) {
  switch (region.kind) {
    case Region::Kind::attention:
      return parallel::CheckpointPart::attention;
    case Region::Kind::mlp:
      return parallel::CheckpointPart::mlp;
    case Region::Kind::block:
      break;
  }
  return parallel::CheckpointPart::block;
}

}  // namespace

std::shared_ptr<const parallel::ActivationCheckpointing> checkpoint_blocks(LanguageModel& model,
                                                                           const parallel::CheckpointPlan& plan) {
  const auto checkpointing = std::make_shared<const parallel::ActivationCheckpointing>(plan);
  const std::vector<Region> regions = model.regions();
  const bool any = std::any_of(regions.begin(), regions.end(), [&](const Region& region) {
    return checkpointing->chooses(region.name, region.block, part_of(region));
  });
  if (!any) {
    std::string names;
    for (const Region& region : regions)
      if (region.block == 0 && part_of(region) == plan.part) names = region.name;
    throw InputError(concat("gradient checkpointing chooses nothing: no ", names.empty() ? "region" : "name",
                            " of the model's ", "matches the regular expression '", plan.names, "'",
                            names.empty() ? std::string() : concat("; the first one is ", names)));
  }
  model.set_region_runner([checkpointing](const Region& region, const RegionFunction& function, const at::Tensor& x) {
    return checkpointing->run(region.name, region.block, part_of(region), function, x);
  });
  return checkpointing;
}

void keep_activations(LanguageModel& model) { model.set_region_runner(nullptr); }

}  // namespace tessera::models
