// Fill in the middle: how it rearranges the texts of a row.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/bytes/byte_sink.h>
#include <tessera/data/fill_in_middle.h>

#include <tests/error_of.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

namespace tessera::data {
namespace {

using tessera::testing::error_of;
using Ids = std::vector<std::int64_t>;

/// One id per byte, and marks; special ids decode to @.
class Bytes final : public text::Tokenizer {
 public:
  static constexpr std::int32_t prefix = 256, middle = 257, suffix = 258, pad = 259, end = 260, mark = 261;

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) text += id < 256 ? std::string(1, static_cast<char>(id)) : std::string("@");
    return text;
  }
  std::int64_t vocab_size() const override { return 262; }
  std::optional<std::int32_t> end_of_text() const override { return end; }
  bool is_special(std::int32_t id) const override { return id >= 256; }
  std::optional<std::int32_t> token_id(std::string_view content) const override {
    static const std::map<std::string_view, std::int32_t> ids = {{"<fim_prefix>", prefix}, {"<fim_middle>", middle},
                                                                 {"<fim_suffix>", suffix}, {"<fim_pad>", pad},
                                                                 {"<|endoftext|>", end},   {"#", '#'}};
    const auto found = ids.find(content);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  }
  void save(const std::string&) const override {}
};

const Bytes tokenizer;

/// | is the end of a text, * a special token.
Ids ids_of(const std::string& text) {
  Ids ids;
  for (const char c : text)
    ids.push_back(c == '|' ? Bytes::end : c == '*' ? Bytes::mark : static_cast<unsigned char>(c));
  return ids;
}
Row row_of(const std::string& text, Ids starts = {0}) {
  Row row{ids_of(text), ids_of(text), std::move(starts)};
  for (const std::int64_t start : row.document_starts)
    if (start > 0) row.labels[static_cast<std::size_t>(start)] = not_scored;
  return row;
}
/// P, M, S, _ for its tokens, | for the end of a text.
std::string shown(const Row& row) {
  std::string text;
  for (const std::int64_t id : row.ids) text += id < 256 ? static_cast<char>(id) : "PMS_|*"[id - 256];
  return text;
}

FillInMiddle always(double spm_rate, std::uint64_t seed = 3) {
  DataConfig config;
  config.fim_data = true;
  config.fim_rate = 1;
  config.fim_spm_rate = spm_rate;
  return fill_in_middle(config, tokenizer, seed);
}

/// Reconstructs the text from PxSzMy or PSzMxy.
std::string put_together(const std::string& text, const std::string& whole) {
  const std::size_t suffix = text.find('S'), middle = text.find('M');
  if (text.empty() || text[0] != 'P' || suffix == std::string::npos || middle == std::string::npos) return text;
  const std::string before = text.substr(1, suffix - 1), after = text.substr(suffix + 1, middle - suffix - 1),
                    rest = text.substr(middle + 1);
  return (before + rest).substr(0, whole.size() - after.size()) + after;
}

TEST(FillInMiddle, PutsTheMiddleLast) {
  const std::string text = "the quick brown fox";
  std::map<std::string, int> seen;
  for (int sample = 0; sample < 200; ++sample) {
    const Row psm = filled_in_middle(row_of(text + "|||"), always(0), tokenizer, sample);
    const std::string made = shown(psm);
    ASSERT_EQ(made.size(), text.size() + 3);  // the empty texts after it are dropped; the end of text does not fit
    ASSERT_EQ(put_together(made, text), text) << made;
    ++seen[made];
    const std::string other = shown(filled_in_middle(row_of(text + "|||"), always(1), tokenizer, sample));
    ASSERT_TRUE(other.starts_with("PS")) << other;
    ASSERT_EQ(put_together(other, text), text) << other;
    EXPECT_EQ(psm.labels, psm.ids);
  }
  EXPECT_GT(seen.size(), 100u) << "other samples split at other positions";
}

TEST(FillInMiddle, FollowsFromSeedAndSample) {
  const Row row = row_of("the quick brown fox jumps");
  const auto made = [&](std::uint64_t seed, std::int64_t sample) {
    return shown(filled_in_middle(row, always(0.5, seed), tokenizer, sample));
  };
  EXPECT_EQ(made(3, 8), made(3, 8));
  EXPECT_NE(made(3, 8), made(3, 9));
  EXPECT_NE(made(3, 8), made(4, 8));
}

TEST(FillInMiddle, HappensAsOftenAsItIsAskedFor) {
  FillInMiddle how = always(0.25);
  how.rate = 0.6;
  int changed = 0, suffix_first = 0;
  for (int sample = 0; sample < 4000; ++sample) {
    const std::string made = shown(filled_in_middle(row_of("abcdefghij"), how, tokenizer, sample));
    changed += made != "abcdefghij";
    // PS could also begin a PSM with an empty prefix: two of its 11 positions are drawn
    suffix_first += made.starts_with("PS");
  }
  EXPECT_NEAR(changed / 4000.0, 0.6, 0.03);
  const double empty_prefix = 1 - (10.0 / 11) * (10.0 / 11);
  EXPECT_NEAR(suffix_first / 4000.0, 0.6 * (0.25 + 0.75 * empty_prefix), 0.03);
}

TEST(FillInMiddle, EachTextOfARowByItself) {
  const Row row = row_of("abc|defg|hi");
  for (int sample = 0; sample < 50; ++sample) {
    const std::string made = shown(filled_in_middle(row, always(0), tokenizer, sample));
    ASSERT_EQ(made.size(), 11u);
    const std::size_t end = made.find('|');
    ASSERT_EQ(end, 6u) << made;
    EXPECT_EQ(put_together(made.substr(0, end), "abc"), "abc") << made;
    EXPECT_EQ(made[7], 'P') << made;
  }
  FillInMiddle never = always(0);
  never.rate = 0;
  EXPECT_EQ(shown(filled_in_middle(row, never, tokenizer, 0)), "abc|defg|hi");
}

TEST(FillInMiddle, DocumentsStayApart) {
  const Row row = row_of("abc|defg|hijklmnop", {0, 4, 9});
  const Row made = filled_in_middle(row, always(0), tokenizer, 1);
  EXPECT_EQ(made.document_starts, (Ids{0, 7, 15}));
  for (const std::size_t start : {7u, 15u}) {
    EXPECT_EQ(made.ids[start], Bytes::prefix);
    EXPECT_EQ(made.labels[start], not_scored);
  }
  EXPECT_EQ(std::count(made.labels.begin(), made.labels.end(), not_scored), 2);
}

TEST(FillInMiddle, FillsUpWithWhatIsNotScored) {
  FillInMiddle never = always(0);
  never.rate = 0;
  const Row made = filled_in_middle(row_of("|||ab", {0, 2, 3}), never, tokenizer, 0);  // texts without tokens
  EXPECT_EQ(shown(made), "ab___");
  EXPECT_EQ(made.labels, (Ids{'a', 'b', not_scored, not_scored, not_scored}));
  EXPECT_EQ(made.document_starts, (Ids{0}));
}

TEST(FillInMiddle, SpecialTokensInsideGo) {
  EXPECT_EQ(shown(filled_in_middle(row_of("****"), always(0), tokenizer, 0)), "PSM_");
}

TEST(FillInMiddle, NoCharacterIsDivided) {
  const std::string text = "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e";  // three characters of three bytes
  for (int sample = 0; sample < 100; ++sample) {
    const Row made = filled_in_middle(row_of(text + "|||"), always(0.5), tokenizer, sample);
    std::size_t bytes = 0;
    for (const std::int64_t id : made.ids) {
      if (id >= 256) {
        EXPECT_EQ(bytes % 3, 0u) << shown(made);
      }
      bytes = id < 256 ? bytes + 1 : 0;
    }
  }
}

TEST(FillInMiddle, FragmentsOfATextByThemselves) {
  DataConfig config;
  config.fim_data = true;
  config.fim_rate = 1;
  config.fim_spm_rate = 0;
  config.fim_split_sample = "#";
  config.fim_fragment_rate = 1;
  const Row row = row_of("abc#de|fgh    ");
  std::string made = shown(filled_in_middle(row, fill_in_middle(config, tokenizer, 1), tokenizer, 0));
  ASSERT_EQ(made[6], '#') << made;
  EXPECT_EQ(put_together(made.substr(0, 6), "abc"), "abc") << made;
  EXPECT_EQ(put_together(made.substr(7, 5), "de"), "de") << made;
  config.fim_fragment_rate = 0;  // if a text has fragments
  made = shown(filled_in_middle(row, fill_in_middle(config, tokenizer, 1), tokenizer, 0));
  EXPECT_TRUE(made.starts_with("abc#de|P")) << made;
}

TEST(FillInMiddle, WhatBeginsWithAPrefixStays) {
  FillInMiddle how = always(0);
  how.no_prefix = "<reponame>";
  const Row row = row_of("<reponame>x|abc   ");
  const std::string made = shown(filled_in_middle(row, how, tokenizer, 0));
  EXPECT_TRUE(made.starts_with("<reponame>x|P")) << made;
}

TEST(FillInMiddle, EpochsSeeTextsCutElsewhere) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 64; ++i) tokens.push_back('a' + i % 26);
  const auto rows = rows_to_fill(token_blocks(tokens, 16, 262, "tokens"), always(0.5), std::make_shared<Bytes>());
  const Sampler in_order(SamplingStrategy::sequential, rows->size(), 0);
  const Batch first = make_batch(*rows, in_order, 0, 4), second = make_batch(*rows, in_order, 4, 4);
  EXPECT_FALSE(first.ids.equal(second.ids));
  EXPECT_TRUE(first.ids.equal(make_batch(*rows, in_order, 0, 4).ids));
  // and the same row in a batch of other rows
  EXPECT_TRUE(first.ids.slice(0, 2, 3).equal(make_batch(*rows, in_order, 2, 1).ids));
  EXPECT_EQ(rows->tokens(), 64);
}

TEST(FillInMiddle, TokensMustBeTheTokenizers) {
  DataConfig config;
  config.fim_middle_token = "<mid>";
  EXPECT_EQ(error_of([&] { fill_in_middle(config, tokenizer, 0); }),
            "--fim_middle_token <mid>: the tokenizer (262 tokens) has no such token: use the tokenizer that has these "
            "tokens (--tokenizer_name), choose a token that it has, or add this one to its tokenizer.json "
            "(added_tokens)");
  config = {};
  config.fim_split_sample = "##";
  EXPECT_NE(error_of([&] { fill_in_middle(config, tokenizer, 0); }).find("--fim_split_sample ##"), std::string::npos);
}

TEST(FillInMiddle, ExamplesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "a.jsonl");
  write_file_atomically(path, "{\"text\": \"abc\"}\n");
  DataConfig config;
  config.train_file = path;
  config.fim_data = true;
  for (const bool streaming : {false, true}) {
    config.streaming = streaming;
    config.validation_split_percentage = 0;
    EXPECT_EQ(error_of([&] { open_datasets(config, tokenizer, 8, 262, false); }),
              concat("--fim_data: ", path,
                     " contains examples, but only blocks of text or tokens can be rearranged: use text (.txt) "
                     "or tokens (.bin with .idx), or remove --fim_data"));
  }
}

}  // namespace
}  // namespace tessera::data
