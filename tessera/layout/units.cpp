#include <tessera/layout/units.h>

#include <tessera/base/error.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <set>

namespace tessera::layout {

namespace {

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

std::string shown(const ModuleEntry& module) { return module.name.empty() ? "the root" : "'" + module.name + "'"; }

void check(const ModuleTree& tree) {
  if (tree.modules.empty()) throw InputError("a model without modules cannot be divided into units");
  for (std::size_t i = 0; i < tree.modules.size(); ++i) {
    const ModuleEntry& module = tree.modules[i];
    if (i > 0 && module.parent >= i)
      throw InputError(concat("module '", module.name, "' (", i, ") comes before its parent (", module.parent, ")"));
    for (const std::size_t parameter : module.parameters) {
      if (parameter >= tree.parameters.size())
        throw InputError(
            concat("module ", shown(module), " has parameter ", parameter, " of ", tree.parameters.size()));
    }
  }
}

/// Number of elements in the module and below it; each parameter counts once, and ignored modules are excluded.
std::int64_t elements_below(const ModuleTree& tree, std::size_t top, const std::vector<bool>& ignored) {
  std::vector<bool> below(tree.modules.size(), false);
  std::set<std::size_t> parameters;
  for (std::size_t i = top; i < tree.modules.size(); ++i) {
    below[i] = i == top || (i > 0 && below[tree.modules[i].parent]);
    if (below[i] && !ignored[i])
      parameters.insert(tree.modules[i].parameters.begin(), tree.modules[i].parameters.end());
  }
  std::int64_t elements = 0;
  for (const std::size_t parameter : parameters) elements += tree.parameters[parameter].numel();
  return elements;
}

std::vector<bool> ignored_modules(const ModuleTree& tree, const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const ModuleEntry& module : tree.modules) known.push_back(module.name);
  std::vector<bool> ignored(tree.modules.size(), false);
  for (const std::string& name : names) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) {
      const auto near = nearest(name, known);
      throw InputError(concat("ignored module '", name, "' is not in the model",
                              near ? concat("; did you mean '", *near, "'?") : ""));
    }
    ignored[static_cast<std::size_t>(found - known.begin())] = true;
  }
  for (std::size_t i = 1; i < tree.modules.size(); ++i) ignored[i] = ignored[i] || ignored[tree.modules[i].parent];
  return ignored;
}

std::string aliased(const WrapPolicy& policy, const std::string& name) {
  const auto found = std::find_if(policy.class_aliases.begin(), policy.class_aliases.end(),
                                  [&](const auto& alias) { return alias.first == name; });
  return found == policy.class_aliases.end() ? name : found->second;
}

bool is_of_class(const WrapPolicy& policy, const ModuleEntry& module, const std::string& name) {
  const std::string_view type = short_class_name(module.type);
  return type == name || type == aliased(policy, name) || module.type == name;
}

/// As in accelerate, classes that do not occur are ignored, but at least one class must occur.
std::vector<bool> picked_by_class(const ModuleTree& tree, const WrapPolicy& policy) {
  std::vector<bool> picked(tree.modules.size(), false);
  std::vector<std::string> types;
  for (std::size_t i = 0; i < tree.modules.size(); ++i) {
    picked[i] = std::any_of(policy.classes.begin(), policy.classes.end(),
                            [&](const std::string& name) { return is_of_class(policy, tree.modules[i], name); });
    const std::string type(short_class_name(tree.modules[i].type));
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  if (!policy.classes.empty() && std::find(picked.begin(), picked.end(), true) == picked.end())
    throw InputError(
        concat(no_class_to_wrap, " '", join(policy.classes, "' or '"), "' to wrap; the model has ", join(types)));
  return picked;
}

std::vector<bool> picked_by_name(const ModuleTree& tree, const WrapPolicy& policy) {
  std::vector<bool> picked(tree.modules.size(), false);
  std::vector<std::string> known;
  for (const ModuleEntry& module : tree.modules) known.push_back(module.name);
  for (const std::string& name : policy.names) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) {
      const auto near = nearest(name, known);
      throw InputError(concat("no module '", name, "' to wrap", near ? concat("; did you mean '", *near, "'?") : ""));
    }
    picked[static_cast<std::size_t>(found - known.begin())] = true;
  }
  return picked;
}

std::vector<bool> picked_by_regex(const ModuleTree& tree, const std::string& pattern) {
  const Pattern wanted("the wrap pattern", pattern);
  std::vector<bool> picked;
  for (const ModuleEntry& module : tree.modules) picked.push_back(wanted.fits(module.name));
  if (std::find(picked.begin(), picked.end(), true) == picked.end())
    throw InputError(concat("the wrap pattern '", pattern, "' matches no module name"));
  return picked;
}

/// FSDP's recursion: a module is descended into if it has enough elements; it becomes a unit if enough of them are left
/// outside of nested units. Children come after their parents, so iterating from the end visits them first.
std::vector<bool> picked_by_size(const ModuleTree& tree, std::int64_t least, const std::vector<bool>& ignored) {
  if (least <= 0) throw InputError(concat("min_num_params is ", least, "; it must be at least 1 element"));
  std::vector<bool> picked(tree.modules.size(), false);
  std::vector<std::int64_t> taken(tree.modules.size(), 0);  // number of elements in nested units
  for (std::size_t i = tree.modules.size(); i-- > 1;) {
    const ModuleEntry& module = tree.modules[i];
    if (ignored[i]) continue;
    const std::int64_t all = elements_below(tree, i, ignored);
    // As in PyTorch: nn.MultiheadAttention is not descended into, because it reads its children's parameters directly.
    const bool inside_leaf = [&] {
      for (std::size_t up = module.parent; up != 0; up = tree.modules[up].parent)
        if (short_class_name(tree.modules[up].type) == "MultiheadAttention") return true;
      return false;
    }();
    if (!inside_leaf && !module.container && all - taken[i] >= least) {
      picked[i] = true;
      taken[i] = all;
    }
    taken[module.parent] += taken[i];
  }
  return picked;
}

}  // namespace

std::string_view short_class_name(std::string_view type) {
  if (const auto templated = type.find('<'); templated != std::string_view::npos) type = type.substr(0, templated);
  if (const auto colon = type.rfind(':'); colon != std::string_view::npos) type = type.substr(colon + 1);
  if (const auto dot = type.rfind('.'); dot != std::string_view::npos) type = type.substr(dot + 1);
  if (type.size() > 4 && type.ends_with("Impl")) type.remove_suffix(4);
  return type;
}

std::vector<std::string> missing_classes(const ModuleTree& tree, const WrapPolicy& policy) {
  std::vector<std::string> missing;
  if (policy.kind != WrapPolicy::Kind::by_class) return missing;
  for (const std::string& name : policy.classes)
    if (std::none_of(tree.modules.begin(), tree.modules.end(),
                     [&](const ModuleEntry& module) { return is_of_class(policy, module, name); }))
      missing.push_back(name);
  return missing;
}

std::vector<Unit> make_units(const ModuleTree& tree, const WrapPolicy& policy) {
  check(tree);
  const std::vector<bool> ignored = ignored_modules(tree, policy.ignored_modules);
  std::vector<bool> picked(tree.modules.size(), false);
  switch (policy.kind) {
    case WrapPolicy::Kind::none:
      break;
    case WrapPolicy::Kind::by_class:
      picked = picked_by_class(tree, policy);
      break;
    case WrapPolicy::Kind::by_size:
      picked = picked_by_size(tree, policy.min_num_params, ignored);
      break;
    case WrapPolicy::Kind::by_regex:
      picked = picked_by_regex(tree, policy.pattern);
      break;
    case WrapPolicy::Kind::by_name:
      picked = picked_by_name(tree, policy);
      break;
  }
  picked[0] = true;

  // Computes the unit of each module and the nesting depth of the units, from the root down.
  std::vector<std::size_t> unit_of(tree.modules.size(), 0), outer(tree.modules.size(), 0),
      depth(tree.modules.size(), 0);
  for (std::size_t i = 1; i < tree.modules.size(); ++i) {
    const std::size_t around = unit_of[tree.modules[i].parent];
    unit_of[i] = picked[i] && !ignored[i] ? i : around;
    if (unit_of[i] == i) {
      outer[i] = around;
      depth[i] = depth[around] + 1;
    }
  }
  const auto common = [&](std::size_t a, std::size_t b) {
    while (a != b) (depth[a] >= depth[b] ? a : b) = outer[depth[a] >= depth[b] ? a : b];
    return a;
  };

  std::vector<std::size_t> owner(tree.parameters.size(), nowhere);
  for (std::size_t i = 0; i < tree.modules.size(); ++i) {
    if (ignored[i]) continue;
    for (const std::size_t parameter : tree.modules[i].parameters)
      owner[parameter] = owner[parameter] == nowhere ? unit_of[i] : common(owner[parameter], unit_of[i]);
  }

  std::vector<Unit> units;
  for (std::size_t i = 0; i < tree.modules.size(); ++i) {
    if (unit_of[i] != i) continue;
    Unit unit{i == 0 ? "root" : tree.modules[i].name, i, {}};
    for (std::size_t parameter = 0; parameter < owner.size(); ++parameter)
      if (owner[parameter] == i) unit.parameters.push_back(parameter);
    if (i == 0 || !unit.parameters.empty()) units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace tessera::layout
