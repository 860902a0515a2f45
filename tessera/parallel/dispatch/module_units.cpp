#include <tessera/parallel/dispatch/module_units.h>

#include <tessera/base/error.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace tessera::parallel {
namespace {

bool only_holds_others(const std::string& type) {
  const std::string_view name = layout::short_class_name(type);
  return name == "ModuleList" || name == "ModuleDict" || name == "ParameterList" || name == "ParameterDict";
}

class TreeMaker {
 public:
  TreeMaker(ModuleParameters& result, bool separate_batch_norm)
      : result_(result), separate_batch_norm_(separate_batch_norm) {}

  void add(const torch::nn::Module& module, const std::string& name, std::size_t parent) {
    const std::size_t self = result_.tree.modules.size();
    layout::ModuleEntry entry{.name = name, .type = module.name(), .parent = parent};
    entry.container = only_holds_others(entry.type);
    for (const auto& item : module.named_parameters(/*recurse=*/false))
      if (item.value().defined()) {
        entry.parameters.push_back(index_of(item.value(), join(name, item.key())));
        result_.of_batch_norm.resize(result_.parameters.size(), separate_batch_norm_ && is_batch_norm(module));
      }
    result_.tree.modules.push_back(std::move(entry));
    for (const auto& child : module.named_children())
      if (child.value() != nullptr) add(*child.value(), join(name, child.key()), self);
  }

 private:
  static std::string join(const std::string& prefix, const std::string& name) {
    return prefix.empty() ? name : prefix + "." + name;
  }

  std::size_t index_of(const at::Tensor& parameter, const std::string& name) {
    const auto [place, fresh] = seen_.emplace(parameter.unsafeGetTensorImpl(), result_.parameters.size());
    if (fresh) {
      result_.parameters.push_back({name, parameter});
      result_.tree.parameters.push_back(
          {name, parameter.sizes().vec(), static_cast<std::int64_t>(parameter.element_size())});
    }
    return place->second;
  }

  ModuleParameters& result_;
  bool separate_batch_norm_;
  std::map<const void*, std::size_t> seen_;
};

}  // namespace

bool is_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr || module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

ModuleParameters parameters_of(const torch::nn::Module& module, bool separate_batch_norm) {
  ModuleParameters result;
  TreeMaker(result, separate_batch_norm).add(module, "", 0);
  result.shared_by_experts.resize(result.parameters.size());
  return result;
}

GroupingPlan group_by_units(const ModuleParameters& module, const layout::WrapPolicy& policy,
                            std::int64_t persistence_threshold) {
  GroupingPlan plan;
  std::vector<std::size_t> small;
  const auto add_unit = [&](const std::string& name, bool root, const std::vector<std::size_t>& parameters,
                            bool whole) {
    using Kind = std::tuple<at::ScalarType, bool, bool, bool>;  // dtype, frozen, of a BatchNorm, has expert replicas
    std::map<Kind, std::vector<std::size_t>> kinds;
    for (const std::size_t p : parameters) {
      const at::Tensor& tensor = module.parameters[p].tensor;
      kinds[{tensor.scalar_type(), !tensor.requires_grad(), module.of_batch_norm[p], module.shared_by_experts[p]}]
          .push_back(p);
    }
    if (kinds.empty()) return;
    UnitPlan unit{name, root, {}};
    for (const auto& [kind, members] : kinds) {
      const auto [dtype, frozen, batch_norm, shared] = kind;
      std::string group = name;
      if (frozen) group += " (frozen)";
      if (batch_norm) group += " (BatchNorm)";
      if (shared && !std::get<3>(kinds.begin()->first)) group += " (beside experts)";
      if (dtype != std::get<0>(kinds.begin()->first)) group += concat(" ", c10::toString(dtype));
      unit.groups.push_back(plan.groups.size());
      plan.groups.push_back({group, plan.units.size(), !frozen, whole, members, batch_norm, shared, unit.root});
    }
    plan.units.push_back(std::move(unit));
  };
  for (const layout::Unit& unit : layout::make_units(module.tree, policy)) {
    std::vector<std::size_t> large;
    for (const std::size_t p : unit.parameters)
      (module.tree.parameters[p].numel() <= persistence_threshold ? small : large).push_back(p);
    add_unit(unit.name, unit.module == 0, large, false);
  }
  add_unit("small parameters", false, small, true);
  return plan;
}

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<NamedTensor>& parameters,
                                                     const std::vector<std::size_t>& order, const BucketSizes& sizes) {
  const auto to_bytes = [](double mebibytes) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(mebibytes * (1 << 20)));
  };
  std::vector<layout::Parameter> described;
  for (const NamedTensor& p : parameters)
    described.push_back({p.name, p.tensor.sizes().vec(), static_cast<std::int64_t>(p.tensor.element_size())});
  using Kind = std::pair<std::size_t, bool>;  // unit, has expert replicas
  const auto kind_of = [&](std::size_t p) {
    return Kind(sizes.unit_of.empty() ? 0 : sizes.unit_of[p],
                !sizes.shared_by_experts.empty() && sizes.shared_by_experts[p]);
  };
  std::map<Kind, std::vector<std::size_t>> by_kind;
  std::vector<std::size_t> place(parameters.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    by_kind[kind_of(order[i])].push_back(order[i]);
  }
  std::vector<std::vector<std::size_t>> result;
  for (const auto& [kind, chosen] : by_kind) {
    const double first = kind == kind_of(order.front()) ? sizes.first_mb : sizes.mb;
    // The layout knows element sizes, not dtypes: float16 and bfloat16 may share a list, but never a bucket.
    for (const auto& list : layout::assign_buckets(described, chosen, to_bytes(first), to_bytes(sizes.mb))) {
      std::map<at::ScalarType, std::vector<std::size_t>> by_type;
      for (const std::size_t p : list) by_type[parameters[p].tensor.scalar_type()].push_back(p);
      for (auto& [dtype, members] : by_type) result.push_back(std::move(members));
    }
  }
  if (by_kind.size() > 1)  // a bucket is ordered by its last parameter, because only then can it be reduced
    std::sort(result.begin(), result.end(),
              [&](const auto& a, const auto& b) { return place[a.back()] < place[b.back()]; });
  return result;
}

std::vector<std::size_t> units_by_parameter(const ModuleParameters& module, const layout::WrapPolicy& policy) {
  std::vector<std::size_t> result;
  if (policy.kind == layout::WrapPolicy::Kind::none) return result;
  result.resize(module.parameters.size());
  const std::vector<layout::Unit> units = layout::make_units(module.tree, policy);
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (const std::size_t p : units[unit].parameters) result[p] = unit;
  return result;
}

GroupingPlan group_by_buckets(const ModuleParameters& module, const BucketSizes& sizes) {
  std::vector<std::size_t> order;
  for (std::size_t p = module.parameters.size(); p-- > 0;)
    if (module.parameters[p].tensor.requires_grad()) order.push_back(p);
  GroupingPlan plan;
  for (std::vector<std::size_t>& members : assign_buckets(module.parameters, order, sizes)) {
    const auto norms =
        std::stable_partition(members.begin(), members.end(), [&](std::size_t p) { return !module.of_batch_norm[p]; });
    const std::vector<std::size_t> of_batch_norm(norms, members.end());
    members.erase(norms, members.end());
    for (const auto& list : {members, of_batch_norm}) {
      if (list.empty()) continue;
      const std::string name = concat("bucket ", plan.units.size());
      plan.units.push_back({name, false, {plan.groups.size()}});
      plan.groups.push_back({name, plan.groups.size(), true, true, list, module.of_batch_norm[list.front()],
                             module.shared_by_experts[list.front()]});
    }
  }
  return plan;
}

}  // namespace tessera::parallel
