#pragma once
/// \file
/// The error about parameters that received no gradient, the same for every strategy.

#include <tessera/comm/group.h>

#include <string>
#include <vector>

namespace tessera::parallel {

/// Throws Error, the same on every rank, that names parameters and ranks. `mine`: the indices into `names` (the same
/// list on every rank) of parameters without a gradient on this rank, one per line. Collective.
[[noreturn]] void throw_unused(const comm::Group& group, const std::vector<std::string>& names,
                               const std::string& mine);

}  // namespace tessera::parallel
