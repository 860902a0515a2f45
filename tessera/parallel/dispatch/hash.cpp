#include <tessera/parallel/dispatch/hash.h>

#include <bit>
#include <cstring>

namespace tessera::parallel {
namespace {

// Odd numbers with well-spread bits: the fractional parts of the square roots of 2 (made odd), 3, 5 and 7.
constexpr std::uint64_t root2 = 0x6a09e667f3bcc909, root3 = 0xbb67ae8584caa73b, root5 = 0x3c6ef372fe94f82b,
                        root7 = 0xa54ff53a5f1d36f1;

/// Mixes one word into a lane. Each step is a bijection of the lane, so a single changed word always changes the
/// result.
std::uint64_t absorb(std::uint64_t lane, std::uint64_t word) { return std::rotl((lane ^ word) * root3, 29) * root2; }

std::uint64_t load(const unsigned char* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

}  // namespace

std::uint64_t hash_bytes(const void* data, std::size_t size) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t lanes[4] = {root2, root3, root5, root7};  // independent, so that the multiplications overlap
  std::size_t left = size;
  for (; left >= 32; left -= 32, p += 32)
    for (int i = 0; i < 4; ++i) lanes[i] = absorb(lanes[i], load(p + 8 * i));
  std::uint64_t hash = size;
  for (const std::uint64_t lane : lanes) hash = absorb(hash, lane);
  for (; left >= 8; left -= 8, p += 8) hash = absorb(hash, load(p));
  if (left > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, left);
    hash = absorb(hash, word);
  }
  hash = (hash ^ (hash >> 32)) * root5;
  hash = (hash ^ (hash >> 29)) * root7;
  return hash ^ (hash >> 32);
}

}  // namespace tessera::parallel
