#pragma once
/// \file
/// Lists of ranks for messages.

#include <string>
#include <vector>

namespace tessera::launch {

/// "0, 1, 3"; three or more consecutive ranks become "0-3". `ranks` must be ascending.
std::string list_ranks(const std::vector<int>& ranks);

/// The list with its noun: "rank 3", "ranks 0-2, 5".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace tessera::launch
