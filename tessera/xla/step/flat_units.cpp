#include <tessera/xla/step/flat_units.h>

#include <tessera/base/error.h>

#include <algorithm>

namespace tessera::xla {

std::vector<FlatUnit> flat_units(const parallel::ModuleParameters& module, const layout::WrapPolicy& policy,
                                 int devices, const std::function<bool(const std::string&)>& has_decay) {
  std::vector<FlatUnit> result;
  for (const layout::Unit& unit : layout::make_units(module.tree, policy))
    for (const bool trained : {true, false}) {
      FlatUnit flat;
      flat.name = unit.name + (trained ? "" : " (frozen)");
      flat.trained = trained;
      flat.root = unit.module == 0;
      for (const std::size_t p : unit.parameters) {
        const at::Tensor& tensor = module.parameters[p].tensor;
        if (tensor.scalar_type() != at::kFloat)
          throw InputError(concat("device xla: ", module.parameters[p].name, " is stored as ",
                                  c10::toString(tensor.scalar_type()), "; parameters must be fp32"));
        if (tensor.requires_grad() == trained) flat.parameters.push_back(p);
      }
      const auto decays = [&](std::size_t p) { return has_decay(module.parameters[p].name); };
      std::ranges::stable_partition(flat.parameters, decays);
      for (const std::size_t p : flat.parameters) {
        flat.offsets.push_back(flat.elements);
        flat.elements += module.parameters[p].tensor.numel();
        if (decays(p)) flat.decayed = flat.elements;
      }
      flat.shard = (flat.elements + devices - 1) / devices;
      if (flat.elements > 0) result.push_back(std::move(flat));
    }
  return result;
}

}  // namespace tessera::xla
