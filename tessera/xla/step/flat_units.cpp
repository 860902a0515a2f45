#include <tessera/xla/step/flat_units.h>

#include <tessera/base/error.h>
#include <tessera/layout/flat.h>

#include <algorithm>

namespace tessera::xla {

std::vector<FlatUnit> flat_units(const parallel::ModuleParameters& module, const layout::WrapPolicy& policy,
                                 int devices, const std::function<bool(const std::string&)>& has_decay) {
  for (const auto& [name, tensor] : module.parameters)
    if (tensor.scalar_type() != at::kFloat)
      throw InputError(concat("device xla: ", name, " is stored as ", c10::toString(tensor.scalar_type()),
                              "; parameters must be fp32"));
  const auto decays = [&](std::size_t p) { return has_decay(module.parameters[p].name); };
  std::vector<FlatUnit> result;
  for (const parallel::GroupPlan& group :
       parallel::group_by_units(module, policy, /*persistence_threshold=*/-1).groups) {
    FlatUnit flat;
    flat.name = group.name;
    flat.trained = group.trained;
    flat.root = group.root;
    flat.parameters = group.parameters;
    std::ranges::stable_partition(flat.parameters, decays);
    const auto layout = layout::make_flat_layout(module.tree.parameters, flat.parameters, devices, /*alignment=*/1);
    for (const layout::Segment& segment : layout.segments) {
      flat.offsets.push_back(segment.offset);
      flat.elements = segment.offset + segment.numel;
      if (decays(segment.parameter)) flat.decayed = flat.elements;
    }
    flat.shard = layout.shard_numel();
    if (flat.elements > 0) result.push_back(std::move(flat));
  }
  return result;
}

}  // namespace tessera::xla
