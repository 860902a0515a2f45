#include <gtest/gtest.h>

#include <set>

#include <tessera/train/core/random_key.h>

namespace tessera::train {
namespace {

TEST(RandomKey, DiffersInEveryPart) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (std::int64_t step = 0; step < 16; ++step)
      for (std::int64_t row = 0; row < 64; row += 4) keys.insert(random_key(seed, step, row));
  EXPECT_EQ(keys.size(), 4u * 16u * 16u);
}

TEST(RandomKey, DecidesWhatIsDrawn) {
  const auto draw = [](std::int64_t step) {
    key_random_numbers(c10::kCPU, 42, step, 8);
    return at::rand({16});
  };
  const at::Tensor first = draw(3);
  at::rand({100});  // draws in between have no effect
  EXPECT_TRUE(at::equal(first, draw(3)));
  EXPECT_FALSE(at::equal(first, draw(4)));
}

}  // namespace
}  // namespace tessera::train
