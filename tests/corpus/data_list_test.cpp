#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/corpus/data_list.h>
#include <tests/error_of.h>

#include <string>
#include <vector>

namespace tessera::corpus {
namespace {

using testing::error_of;
using Places = std::vector<std::string>;

TEST(DataList, PlacesWithoutWeights) {
  const auto parts = parse_data_list(" a.txt, 'with blank.txt' part-*.jsonl \"x,y\" ");
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].weight, 0);
  EXPECT_EQ(parts[0].places, (Places{"a.txt", "with blank.txt", "part-*.jsonl", "x,y"}));
  EXPECT_TRUE(parse_data_list("  ").empty());
}

TEST(DataList, AWeightHoldsForWhatFollowsIt) {
  const auto parts = parse_data_list("0.7 a.jsonl b 3 '5' 1e-2 c");
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].weight, 0.7);
  EXPECT_EQ(parts[0].places, (Places{"a.jsonl", "b"}));
  EXPECT_EQ(parts[1].weight, 3);
  EXPECT_EQ(parts[1].places, (Places{"5"}));  // quoted, so a path
  EXPECT_EQ(parts[2].weight, 0.01);
  EXPECT_EQ(places_of(parts), (Places{"a.jsonl", "b", "5", "c"}));
}

TEST(DataList, WhatExistsIsOnePlace) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/0.5 my file, old.txt";
  write_file_atomically(path, "x");
  EXPECT_EQ(places_of(parse_data_list(path)), Places{path});
  EXPECT_EQ(places_of(parse_data_list(quoted(path) + " b")), (Places{path, "b"}));
  EXPECT_FALSE(is_pattern(path));
  EXPECT_TRUE(is_pattern(folder.path() + "/*.txt"));
  write_file_atomically(folder.path() + "/[x].txt", "x");
  EXPECT_FALSE(is_pattern(folder.path() + "/[x].txt"));
}

TEST(DataList, Refuses) {
  const auto error = [](const char* text) { return error_of([&] { parse_data_list(text); }); };
  EXPECT_EQ(error("'a b"), "the list of files ''a b' has an unclosed quote: 'a b");
  EXPECT_EQ(error("0.5 a 0 b"), "the list of files '0.5 a 0 b': the weight 0 is not above 0");
  EXPECT_EQ(error("-1 a"), "the list of files '-1 a': the weight -1 is not above 0");
  EXPECT_NE(error("0.5 0.5 b").find("a weight is followed by 0.5, another weight"), std::string::npos);
  EXPECT_EQ(error("1 a 2"), "the list of files '1 a 2' names no file after its last weight");
  EXPECT_NE(error("a 0.5 b").find("begins without one"), std::string::npos);
  EXPECT_NE(error("''").find("names an empty path"), std::string::npos);
}

RC_GTEST_PROP(DataList, QuotedWordsComeBack, (const std::vector<std::string>& words)) {
  Places places;
  std::string list;
  for (const std::string& word : words) {
    if (word.empty() || (word.find('\'') != std::string::npos && word.find('"') != std::string::npos)) continue;
    if (word.find('\0') != std::string::npos || parse_real(word)) continue;
    places.push_back(word);
    list += " " + quoted(word);
  }
  if (!places.empty()) RC_ASSERT(places_of(parse_data_list(list)) == places);
}

}  // namespace
}  // namespace tessera::corpus
