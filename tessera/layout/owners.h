#pragma once
/// \file
/// Who writes what: whole tensors dealt out to ranks so that each writes about the same number of bytes. Pure arithmetic, the same on
/// every rank.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::layout {

/// owner[i] in [0, ranks) of a tensor of bytes[i]: the largest first, each to the rank that has least so far (Graham 1969, LPT: at most
/// 4/3 of the best possible maximum); of equal ranks the lowest. Throws Error for ranks < 1 or negative sizes.
std::vector<int> assign_owners(std::span<const std::int64_t> bytes, int ranks);

}  // namespace tessera::layout
