#pragma once
/// \file
/// Who writes what: whole tensors dealt out to ranks so that each writes about the same number of bytes and what lies
/// whole on a rank need not be moved. Pure arithmetic, the same on every rank.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::layout {

/// owner[i] in [0, ranks) of a tensor of bytes[i]. One that holders[i] has whole stays there; -1: it is dealt out.
/// These, the largest first, go each to the rank that has least so far (Graham 1969, LPT: without holders at most 4/3
/// of the best possible maximum); of equal ranks to the lowest. Without `holders` all are dealt out. Throws Error for
/// ranks < 1, negative sizes, and holders that are no ranks or not one per tensor.
std::vector<int> assign_owners(std::span<const std::int64_t> bytes, int ranks, std::span<const int> holders = {});

}  // namespace tessera::layout
