#pragma once
/// \file
/// Describes which ranks' data differs among ranks that should hold the same data.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::parallel {

/// `hashes`: one hash per rank; `ranks`: each rank's name ("2": its number in the job). Empty when all are equal. The
/// majority is assumed to be right: " on rank 3 differs from most ranks (2, 4)". Without one, or with two
/// ranks, it is undecided: " on rank 3 differs from that on rank 2: either may be the wrong one".
std::string describe_odd_ranks(const std::vector<std::int64_t>& hashes, const std::vector<std::string>& ranks);

}  // namespace tessera::parallel
