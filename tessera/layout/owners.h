#pragma once
/// \file
/// Assigns whole tensors to the ranks that will write them. Each rank writes about the same number of bytes, and
/// tensors that a rank already holds are not moved. Pure arithmetic, the same on every rank.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::layout {

/// Returns for each tensor of bytes[i] its owner in [0, ranks). A tensor that rank holders[i] holds whole stays there;
/// -1: free to assign. Free tensors go, largest first, to the rank with the fewest bytes so far (Graham 1969, LPT:
/// without holders at most 4/3 of the best possible maximum), the lowest of equal ranks. Without `holders`, all are
/// free. Throws Error for ranks < 1, negative sizes, and holders that are not valid ranks or not one per tensor.
std::vector<int> assign_owners(std::span<const std::int64_t> bytes, int ranks, std::span<const int> holders = {});

}  // namespace tessera::layout
