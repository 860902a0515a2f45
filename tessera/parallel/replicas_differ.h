#pragma once
/// \file
/// Which of the ranks that should hold the same hold something else, in words.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::parallel {

/// `hashes`: of what each rank holds; `ranks`: what each is called ("2": its number in the job). Empty when all are
/// equal. A majority is right: " on rank 3 has other bits than on most ranks (2, 4)". Without one, and of two, nobody
/// can tell: " has other bits on rank 3 than on rank 2: either may be the wrong one".
std::string describe_odd_ranks(const std::vector<std::int64_t>& hashes, const std::vector<std::string>& ranks);

}  // namespace tessera::parallel
