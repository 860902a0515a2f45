// The hash that compares replicas: no two different small changes may cancel.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/parallel/dispatch/hash.h>

#include <set>
#include <string>
#include <vector>

namespace {

using tessera::parallel::hash_bytes;

TEST(Hash, is_a_fixed_function_of_bytes_and_length) {
  std::set<std::uint64_t> seen;
  const std::vector<unsigned char> zeros(200, 0);
  for (std::size_t n = 0; n <= zeros.size(); ++n)
    EXPECT_TRUE(seen.insert(hash_bytes(zeros.data(), n)).second) << n << " zero bytes";
  std::string text = "a misaligned text, so that words are read from odd addresses";
  const std::string copy = "x" + text;
  EXPECT_EQ(hash_bytes(text.data(), text.size()), hash_bytes(copy.data() + 1, text.size()));
}

RC_GTEST_PROP(HashProperty, one_flipped_bit_changes_the_hash, ()) {
  auto bytes = *rc::gen::nonEmpty(rc::gen::arbitrary<std::vector<unsigned char>>());
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
  const auto before = hash_bytes(bytes.data(), bytes.size());
  bytes[at] = static_cast<unsigned char>(bytes[at] ^ (1u << *rc::gen::inRange(0, 8)));
  RC_ASSERT(hash_bytes(bytes.data(), bytes.size()) != before);
}

TEST(Hash, swapped_words_and_lanes_change_the_hash) {
  std::vector<std::uint64_t> words(16);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * 0x0101010101010101;
  const auto before = hash_bytes(words.data(), words.size() * 8);
  for (std::size_t i = 0; i < words.size(); ++i)
    for (std::size_t j = i + 1; j < words.size(); ++j) {
      auto swapped = words;
      std::swap(swapped[i], swapped[j]);
      EXPECT_NE(hash_bytes(swapped.data(), swapped.size() * 8), before) << i << " " << j;
    }
}

TEST(Hash, bits_avalanche) {
  // About half of the 64 result bits change, whichever input bit is flipped.
  std::vector<unsigned char> bytes(64, 7);
  const auto before = hash_bytes(bytes.data(), bytes.size());
  double flips = 0;
  for (std::size_t bit = 0; bit < 512; ++bit) {
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1u << (bit % 8)));
    flips += __builtin_popcountll(before ^ hash_bytes(bytes.data(), bytes.size()));
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1u << (bit % 8)));
  }
  EXPECT_NEAR(flips / 512, 32, 1);
}

}  // namespace
