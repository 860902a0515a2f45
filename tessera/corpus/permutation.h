#pragma once
/// \file
/// Permutations that are computed, not stored.

#include <cstdint>

namespace tessera::corpus {

/// A pseudo-random bijection of 64-bit numbers: SplitMix64's step (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t mix(std::uint64_t x);

/// The image of i < n under a permutation of [0, n) selected by `key`. O(1), no memory: a generalised Feistel cipher on
/// pairs (left, right) of digits in base ceil(sqrt(n)), with cycle walking for the few values beyond n (Black and
/// Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002).
std::uint64_t permuted(std::uint64_t i, std::uint64_t n, std::uint64_t key);

}  // namespace tessera::corpus
