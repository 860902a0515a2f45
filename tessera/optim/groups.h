#pragma once
/// \file
/// Parameter groups: weight decay and learning-rate scale by the parameter's name.

#include <tessera/optim/optimizer.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::optim {

struct ParameterGroup {
  std::string pattern;                             ///< regular expression (ECMAScript) that matches the whole name
  std::optional<double> weight_decay = {};         ///< empty: the slot keeps its own
  std::optional<double> learning_rate_scale = {};  ///< multiplies the learning rate; empty: the slot keeps its own
};

/// Gives every slot the numbers of the first group that matches its name; slots that none matches keep theirs. Throws
/// InputError for a pattern that is not a regular expression, one that matches no name at all (with the nearest name),
/// one whose names all belong to earlier groups, and for numbers that are negative or not finite.
void apply_groups(std::vector<Slot>& slots, const std::vector<ParameterGroup>& groups);

}  // namespace tessera::optim
