#include <tessera/corpus/permutation.h>

#include <cmath>

namespace tessera::corpus {
namespace {

constexpr int rounds = 10;

/// Maps 64 random bits to a number in [0, bound) (bias below bound / 2^64).
std::uint64_t below(std::uint64_t bits, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

/// The smallest base with base^2 >= n.
std::uint64_t square_base(std::uint64_t n) {
  auto base = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (base * base >= n && base > 1) --base;
  while (base * base < n) ++base;
  return base;
}

}  // namespace

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::uint64_t permuted(std::uint64_t i, std::uint64_t n, std::uint64_t key) {
  const std::uint64_t base = square_base(n);
  do {
    std::uint64_t left = i / base, right = i % base;
    for (int round = 0; round < rounds; ++round) {
      // Invertible: right is kept, so the sum can be undone.
      const std::uint64_t moved =
          (left + below(mix(key + mix(right * rounds + static_cast<std::uint64_t>(round))), base)) % base;
      left = right;
      right = moved;
    }
    i = left * base + right;
  } while (i >= n);  // cycle walking keeps only values below n
  return i;
}

}  // namespace tessera::corpus
