#include <tessera/optim/groups.h>

#include <tessera/base/error.h>

#include <cmath>
#include <regex>

namespace tessera::optim {
namespace {

std::regex compiled(const std::string& pattern) {
  try {
    return std::regex(pattern, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    throw InputError(concat("parameter group '", pattern, "': not a regular expression: ", error.what()));
  }
}

void check_group(const ParameterGroup& group) {
  for (const auto& [what, number] :
       {std::pair{"weight_decay", group.weight_decay}, std::pair{"learning_rate_scale", group.learning_rate_scale}})
    if (number && (!(*number >= 0) || !std::isfinite(*number)))
      throw InputError(concat("parameter group '", group.pattern, "': ", what, " = ", *number,
                              "; it must be finite and not negative"));
}

}  // namespace

void apply_groups(std::vector<Slot>& slots, const std::vector<ParameterGroup>& groups) {
  std::vector<std::string> names;
  for (const Slot& slot : slots) names.push_back(slot.name);
  std::vector<const ParameterGroup*> owner(slots.size());
  for (const ParameterGroup& group : groups) {
    check_group(group);
    const std::regex pattern = compiled(group.pattern);
    const ParameterGroup* earlier = nullptr;
    std::string shared;
    bool owns = false;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (!std::regex_match(names[i], pattern)) continue;
      if (owner[i]) {
        earlier = owner[i];
        shared = names[i];
        continue;
      }
      owner[i] = &group;
      owns = true;
      if (group.weight_decay) slots[i].weight_decay = *group.weight_decay;
      if (group.learning_rate_scale) slots[i].learning_rate_scale = *group.learning_rate_scale;
    }
    if (owns) continue;
    if (earlier)
      throw InputError(concat("parameter group '", group.pattern, "': every parameter that it matches, such as '",
                              shared, "', belongs to an earlier group ('", earlier->pattern,
                              "'); the first match decides, so put the narrower pattern first"));
    const auto near = nearest(group.pattern, names);
    throw InputError(concat("parameter group '", group.pattern, "' matches no parameter",
                            near            ? concat("; did you mean '", *near, "'?")
                            : names.empty() ? std::string("; there are none")
                                            : concat("; names look like '", names.front(), "' and '", names.back(),
                                                     "', and a pattern must match the whole name (.* stands for "
                                                     "anything)")));
  }
}

}  // namespace tessera::optim
