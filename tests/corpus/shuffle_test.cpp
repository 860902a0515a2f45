#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <tessera/corpus/shuffle.h>
#include <tests/corpus/made_files.h>
#include <tests/error_of.h>

namespace tessera::corpus {
namespace {

using Items = std::vector<std::string>;

Items shuffled(const Items& items, std::uint64_t seed, std::uint64_t memory) {
  static const MadeFiles made;  // temporary files there are unnamed
  Items out;
  std::size_t at = 0;
  shuffle([&]() -> std::optional<std::string> { return at < items.size() ? std::optional(items[at++]) : std::nullopt; },
          [&](std::string_view item) { out.emplace_back(item); }, {seed, memory, made.path()});
  return out;
}

RC_GTEST_PROP(Shuffle, TheMemoryDoesNotMatter, (Items items, std::uint64_t seed, std::uint16_t memory)) {
  const Items in_memory = shuffled(items, seed, std::uint64_t{1} << 30);
  RC_ASSERT(shuffled(items, seed, memory) == in_memory);
  Items a = items, b = in_memory;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  RC_ASSERT(a == b);
}

TEST(Shuffle, FilesWithinFiles) {
  Items items;
  for (int i = 0; i < 20000; ++i) items.push_back(std::to_string(i));
  EXPECT_EQ(shuffled(items, 3, 4000), shuffled(items, 3, 1 << 30)) << "three levels of files";
  EXPECT_NE(shuffled(items, 3, 1 << 30), shuffled(items, 4, 1 << 30));
}

TEST(Shuffle, EveryOrderIsAsLikely) {
  std::map<Items, int> seen;
  constexpr int tries = 6000;
  for (int seed = 0; seed < tries; ++seed) ++seen[shuffled({"a", "b", "c"}, static_cast<std::uint64_t>(seed), 1 << 20)];
  ASSERT_EQ(seen.size(), 6u);
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, tries / 6, 150) << "five standard deviations";
}

TEST(Shuffle, NamesTheFolderThatIsNotThere) {
  int left = 100;
  const auto next = [&]() -> std::optional<std::string> {
    return left-- > 0 ? std::optional(std::string(99, 'x')) : std::nullopt;
  };
  EXPECT_NE(testing::error_of([&] {
              shuffle(next, [](std::string_view) {}, {0, 10, "/no/such/folder"});
            }).find("/no/such/folder"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::corpus
