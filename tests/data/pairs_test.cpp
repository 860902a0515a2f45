// Preference pairs: the ids of a record, which ones are scored, what is truncated, and the rows of a pair.

#include <tessera/data/pairs.h>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/run_config.h>

#include "fake_tokenizer.h"

namespace tessera::data {
namespace {

using Ids = std::vector<std::int64_t>;

class PairsTest : public ::testing::Test {
 protected:
  Datasets open(const std::string& text) {
    const std::string path = path_join(folder_.path(), "pairs.jsonl");
    write_file_atomically(path, text);
    config_.train_file = path;
    return open_datasets(config_, tokenizer_, 16, 256, false, {}, "", 0, /*pairs=*/true);
  }
  std::string complaint(const std::string& text) {
    try {
      open(text);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }
  TemporaryFolder folder_;
  FakeTokenizer tokenizer_;
  DataConfig config_;
};

TEST_F(PairsTest, ARowHoldsBothAndABatchHasThemSideBySide) {
  const Datasets data = open(
      "{\"prompt\": \"ab\", \"chosen\": \"xyz\", \"rejected\": \"w\"}\n"
      "{\"rejected\": \"st\", \"prompt\": \"c\", \"chosen\": \"u\", \"id\": 7}\n");
  ASSERT_EQ(data.train->size(), 2);
  const Row row = data.train->read(0);
  EXPECT_EQ(row.ids, (Ids{'a', 'b', 'x', 'y', 'z', 'a', 'b', 'w'}));
  EXPECT_EQ(row.labels, (Ids{-100, -100, 'x', 'y', 'z', -100, -100, 'w'}));
  EXPECT_EQ(row.document_starts, (Ids{0, 5}));

  const Sampler order(SamplingStrategy::sequential, 2, 0);
  Batch read = make_batch(*data.train, order, 0, 2);
  read.first_row = 6;
  const Batch batch = as_pairs(read);
  const at::Tensor ids = at::tensor(Ids{'a', 'b', 'x', 'y', 'z', 'a', 'b', 'w', 0, 0,  //
                                        'c', 'u', 0,   0,   0,   'c', 's', 't', 0, 0})
                             .view({4, 5});
  const at::Tensor labels = at::tensor(Ids{-100, -100, 'x',  'y',  'z',  -100, -100, 'w', -100, -100,  //
                                           -100, 'u',  -100, -100, -100, -100, 's',  't', -100, -100})
                                .view({4, 5});
  EXPECT_TRUE(at::equal(batch.ids, ids)) << batch.ids;
  EXPECT_TRUE(at::equal(batch.labels, labels)) << batch.labels;
  EXPECT_EQ(batch.lengths, (Ids{5, 3, 2, 3}));
  EXPECT_TRUE(batch.document_starts.empty());
  EXPECT_EQ(batch.scored_tokens, 2) << "pairs";
  EXPECT_EQ(batch.labels_not_ignored, 2);
  EXPECT_EQ(batch.tokens, 13);
  EXPECT_EQ(batch.first_row, 12);
}

TEST_F(PairsTest, PromptsLoseTheirBeginningAnswersTheirEnd) {
  config_.max_prompt_length = 2;
  config_.max_seq_length = 4;
  const Datasets data = open("{\"prompt\": \"abcd\", \"chosen\": \"xyz\", \"rejected\": \"w\"}\n");
  EXPECT_EQ(data.train->read(0).ids, (Ids{'c', 'd', 'x', 'y', 'c', 'd', 'w'}));
  EXPECT_EQ(data.train->max_length(), 4) << "of one example";
  EXPECT_FALSE(data.warnings.empty()) << "truncation is reported";

  config_.max_prompt_length = 0;  // then no answer fits, so the pair is dropped
  EXPECT_NE(complaint("{\"prompt\": \"abcd\", \"chosen\": \"xyz\", \"rejected\": \"w\"}\n").find("none of its 1"),
            std::string::npos);
}

TEST_F(PairsTest, TheFirstTokenOfAllIsNotScored) {
  const Datasets data = open("{\"prompt\": \"\", \"chosen\": \"xy\", \"rejected\": \"zw\"}\n");
  EXPECT_EQ(data.train->read(0).labels, (Ids{-100, 'y', -100, 'w'}));
}

TEST_F(PairsTest, Conversations) {
  config_.chat_template =
      "{% for m in messages %}<{{ m['role'][0] }}>{{ m['content'] }};{% endfor %}"
      "{% if add_generation_prompt %}<a>{% endif %}";
  const char* explicit_prompt =
      R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "y"}],)"
      R"( "rejected": [{"role": "assistant", "content": "no"}]})";
  const char* in_both =
      R"({"prompt": "q", "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "y"}],)"
      R"( "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "no"}]})";
  for (const char* record : {explicit_prompt, in_both}) {
    const Row row = open(std::string(record) + "\n").train->read(0);
    EXPECT_EQ(row.ids, (Ids{'<', 'u', '>', 'q', ';', '<', 'a', '>', 'y', ';',  //
                            '<', 'u', '>', 'q', ';', '<', 'a', '>', 'n', 'o', ';'}));
    EXPECT_EQ(row.labels, (Ids{-100, -100, -100, -100, -100, -100, -100, -100, 'y', ';',  //
                               -100, -100, -100, -100, -100, -100, -100, -100, 'n', 'o', ';'}));
  }
}

TEST_F(PairsTest, ConversationsOfPairsAreReadAsOthersAre) {
  config_.max_seq_length = 100;
  config_.chat_template =
      "{{ 'T' ~ tools[0].name if tools else '' }}{{ mood }}{% for m in messages %}<{{ m['role'][0] }}>"
      "{{ m['content'] }};{% endfor %}{% if add_generation_prompt %}<a>{% endif %}";
  const Row row = open(R"({"tools": [{"name": "f"}], "chat_template_kwargs": {"mood": "M", "tone": 1}, "system": "S",)"
                       R"( "question": "q", "chosen": [{"role": "assistant", "content": "y"},)"
                       R"( {"role": "tool", "content": "t"}, {"role": "assistant", "content": "z"}],)"
                       R"( "rejected": "n"})"
                       "\n")
                      .train->read(0);
  const std::string prompt = "TfM<s>S;<u>q;<a>", chosen = "y;<t>t;<a>z;", rejected = "n;";
  const std::string all = prompt + chosen + prompt + rejected;
  EXPECT_EQ(row.ids, Ids(all.begin(), all.end()));
  EXPECT_EQ(row.document_starts[1], std::ssize(prompt + chosen));
  const auto scored = std::count_if(row.labels.begin(), row.labels.end(), [](auto label) { return label >= 0; });
  EXPECT_EQ(scored, std::ssize(chosen + rejected)) << "the whole answer, as in TRL";
  config_.column_map = "prompt=q,chosen=good";
  EXPECT_EQ(open("{\"q\": \"a\", \"good\": \"b\", \"rejected\": \"c\"}\n").train->read(0).ids,
            (Ids{'a', 'b', 'a', 'c'}));
}

TEST_F(PairsTest, EmptyAnswersAreLeftOut) {
  const Datasets data = open(
      "{\"prompt\": \"ab\", \"chosen\": \"x\", \"rejected\": \"y\"}\n"
      "{\"prompt\": \"ab\", \"chosen\": \"x\", \"rejected\": \"\"}\n");
  EXPECT_EQ(data.train->size(), 1);
  ASSERT_EQ(data.warnings.size(), 1u);
  EXPECT_NE(data.warnings[0].find("1 of 2 records was left out: \"rejected\" is empty"), std::string::npos);
}

TEST_F(PairsTest, Complaints) {
  const auto says = [&](const std::string& text, const char* words) {
    const std::string said = complaint(text);
    EXPECT_NE(said.find(words), std::string::npos) << said;
    EXPECT_NE(said.find("pairs.jsonl:1:"), std::string::npos) << said;
  };
  says("{\"prompt\": \"a\", \"chosen\": \"b\"}\n", "has no \"rejected\"");
  says("{\"chosen\": \"b\", \"rejected\": \"c\"}\n", "do not begin with the same words");
  says("{\"prompt\": \"a\", \"chosen\": \"\", \"rejected\": \"c\"}\n", "\"chosen\" is empty");
  config_.chat_template = "{% for m in messages %}<{{ m['role'][0] }}>{{ m['content'] }};{% endfor %}";
  says(R"({"chosen": [{"role": "user", "content": "q"}], "rejected": [{"role": "user", "content": "r"}]})"
       "\n",
       "do not begin with the same message");
  says(R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "user", "content": "y"}],)"
       R"( "rejected": [{"role": "assistant", "content": "no"}]})"
       "\n",
       "must be a message of the assistant");
  config_.train_file = path_join(folder_.path(), "text.txt");
  write_file_atomically(config_.train_file, "text\n");
  EXPECT_THROW(open_datasets(config_, tokenizer_, 16, 256, false, {}, "", 0, true), InputError);
}

}  // namespace
}  // namespace tessera::data
