#pragma once
/// \file
/// Rules for the names that programs choose: keys of a store, worlds, groups.

#include <string>
#include <string_view>

namespace tessera::wire {

constexpr std::size_t longest_key = 128, longest_group_name = 255;

/// Throws Failure (invalid) unless `key` has 1 to longest_key letters, digits and "/_-. :", which every store accepts.
/// `what` names it in the text: "the key".
void check_key(const char* what, std::string_view key);

/// Throws Failure (invalid) for a group's name that is too long or has control characters: it is shown in messages.
void check_group_name(std::string_view name);

}  // namespace tessera::wire
