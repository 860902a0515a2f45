#pragma once
/// \file
/// Lists of ranks as people write them.

#include <string>
#include <vector>

namespace tessera::launch {

/// "0, 1, 3" or, from three on in a row, "0-3". Ascending ranks.
std::string list_ranks(const std::vector<int>& ranks);

/// With the word before it: "rank 3", "ranks 0-2, 5".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace tessera::launch
