// A permutation of [0, n) that is computed, not stored: a generalised Feistel cipher on pairs (left, right) of digits
// in base ceil(sqrt(n)), with cycle walking for the few numbers beyond n (Black and Rogaway, "Ciphers with Arbitrary
// Finite Domains", CT-RSA 2002). The round function is SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014).

#include <cmath>

#include <tessera/base/error.h>
#include <tessera/data/dataset.h>

namespace tessera::data {
namespace {

constexpr int kRounds = 10;

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// A number in [0, bound) from 64 random bits (bias below bound / 2^64).
std::uint64_t below(std::uint64_t bits, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

// The least base with base^2 >= n.
std::uint64_t square_base(std::uint64_t n) {
  auto base = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (base * base >= n && base > 1) --base;
  while (base * base < n) ++base;
  return base;
}

std::uint64_t permuted(std::uint64_t i, std::uint64_t n, std::uint64_t key) {
  const std::uint64_t base = square_base(n);
  do {
    std::uint64_t left = i / base, right = i % base;
    for (int round = 0; round < kRounds; ++round) {
      // Invertible: right stays known, so the sum can be undone.
      const std::uint64_t moved = (left + below(mix(key + mix(right * kRounds + round)), base)) % base;
      left = right;
      right = moved;
    }
    i = left * base + right;
  } while (i >= n);  // a cipher of [0, base^2) restricted to the cycle positions below n is a permutation of [0, n)
  return i;
}

}  // namespace

Sampler::Sampler(std::string strategy, std::int64_t dataset_size, std::uint64_t seed)
    : random_(strategy == "random"), size_(dataset_size), seed_(seed) {
  if (!random_ && strategy != "sequential") {
    throw InputError(concat("train_sampling_strategy is '", strategy, "'; it must be random or sequential"));
  }
  if (size_ < 1) throw InputError(concat("cannot sample from a dataset of ", size_, " blocks; it needs at least 1"));
}

std::int64_t Sampler::operator()(std::int64_t i) const {
  TESSERA_CHECK(i >= 0, "sample ", i);
  const std::int64_t epoch = i / size_, position = i % size_;
  if (!random_) return position;
  const std::uint64_t key = mix(mix(seed_) + static_cast<std::uint64_t>(epoch));
  return static_cast<std::int64_t>(
      permuted(static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(size_), key));
}

}  // namespace tessera::data
