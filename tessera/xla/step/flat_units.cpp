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
    flat.layer = result.size();
    if (flat.elements > 0) result.push_back(std::move(flat));
  }
  return result;
}

std::vector<std::int64_t> sizes_of_part(const FlatUnit& unit, int devices) {
  std::vector<std::int64_t> sizes = unit.sizes;
  if (!sizes.empty()) sizes[0] = (sizes[0] + devices - 1) / devices;
  return sizes;
}

std::vector<FlatUnit> row_units(const parallel::ModuleParameters& module, const layout::WrapPolicy& policy, int devices,
                                const std::function<bool(const std::string&)>& has_decay) {
  std::vector<FlatUnit> result;
  for (const FlatUnit& group : flat_units(module, policy, devices, has_decay))
    for (const std::size_t p : group.parameters) {
      const auto& [name, tensor] = module.parameters[p];
      FlatUnit unit;
      unit.name = name;
      unit.trained = group.trained;
      unit.root = group.root;
      unit.parameters = {p};
      unit.offsets = {0};
      unit.elements = tensor.numel();
      unit.decayed = has_decay(name) ? unit.elements : 0;
      unit.layer = group.layer;
      unit.sizes = tensor.sizes().vec();
      unit.shard = 1;
      for (const std::int64_t size : sizes_of_part(unit, devices)) unit.shard *= size;
      if (unit.elements > 0) result.push_back(std::move(unit));
    }
  return result;
}

}  // namespace tessera::xla
