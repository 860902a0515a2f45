// The description of a dataset's contents, which is compared when the run starts again.

#include <gtest/gtest.h>

#include <tessera/data/contents.h>
#include <tessera/data/dataset.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {
namespace {

std::vector<std::int32_t> some_tokens(std::size_t count) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * i + i / 7) % 250));
  return tokens;
}

std::string contents(const std::vector<std::int32_t>& tokens, std::int64_t block = 4) {
  return describe_contents(*token_blocks(tokens, block, 256, "tokens"));
}

TEST(Contents, AreTheSameForTheSameRowsAndSayHowMany) {
  EXPECT_EQ(contents(some_tokens(400)), contents(some_tokens(400)));
  EXPECT_EQ(contents(some_tokens(400)).find("100 rows, contents "), 0u) << contents(some_tokens(400));
  EXPECT_EQ(contents(some_tokens(4)).find("1 row, contents "), 0u) << contents(some_tokens(4));
}

TEST(Contents, TellsAnyChangeOfAFewRows) {
  const std::vector<std::int32_t> tokens = some_tokens(80);
  const std::string before = contents(tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::vector<std::int32_t> other = tokens;
    other[i] ^= 1;
    EXPECT_NE(contents(other), before) << i;
  }
}

TEST(Contents, TellsWhatIsAppendedCutOrShiftedInManyRows) {
  const std::vector<std::int32_t> tokens = some_tokens(std::size_t{3} << 20);
  const std::string whole = contents(tokens, 64);
  std::vector<std::int32_t> other = tokens;
  other.insert(other.end(), 64, 5);
  EXPECT_NE(contents(other, 64), whole) << "appended";
  other = tokens;
  other.resize(other.size() - 64);
  EXPECT_NE(contents(other, 64), whole) << "cut";
  other = tokens;
  other.erase(other.begin() + (1 << 20));
  other.push_back(0);
  EXPECT_NE(contents(other, 64), whole) << "shifted";
  other = tokens;
  other.back() ^= 1;
  EXPECT_NE(contents(other, 64), whole) << "the last row is checked";
}

}  // namespace
}  // namespace tessera::data
