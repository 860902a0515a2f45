#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/sources.h>
#include <tessera/data/cached_rows.h>
#include <tessera/data/examples.h>
#include <tessera/data/text_records.h>

#include "fake_tokenizer.h"
#include "marked_tokenizer.h"

namespace tessera::data {
namespace {

using Ids = std::vector<std::int64_t>;
using T = MarkedTokenizer;

class ExamplesTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "e.jsonl") {
    const std::string path = path_join(folder_.path(), name);
    write_file_atomically(path, text);
    return path;
  }
  struct File {
    std::shared_ptr<const ExampleSource> examples;
    corpus::Tally tally;
  };
  File read_file(const std::string& path, int threads = 1, const ReadProgress& progress = {}) {
    std::vector<std::string> notes;
    const auto request = examples_request({corpus::source_file(path)}, tokenizer_, options_, threads, notes);
    const auto tokens = open_tokens(request, tokenizer_, "none", progress, notes);
    return {stored_examples(tokens.store, tokens.tally.longest), tokens.tally};
  }
  File read(const std::string& text) { return read_file(write(text)); }
  static Row row(const File& file, std::int64_t example) {
    return example_rows(file.examples, 0, file.examples->size())->read(example);
  }
  /// The error message, without the folder's name.
  std::string complaint(const std::string& text, const text::Tokenizer& tokenizer) {
    DataConfig config;
    config.train_file = write(text);
    config.max_seq_length = options_.max_length;
    try {
      open_datasets(config, tokenizer, 4, options_.vocab_size, false);
    } catch (const InputError& error) {
      std::string what = error.what();
      const std::string folder = folder_.path() + "/";
      for (std::size_t at; (at = what.find(folder)) != std::string::npos;) what.erase(at, folder.size());
      return what;
    }
    return "accepted";
  }
  std::string complaint(const std::string& text) { return complaint(text, tokenizer_); }

  TemporaryFolder folder_;
  MarkedTokenizer tokenizer_;
  ExampleOptions options_{.max_length = 64,
                          .vocab_size = 260,
                          .chat = std::make_shared<const text::ChatTemplate>(text::ChatTemplate::chatml())};
};

TEST_F(ExamplesTest, TextIsScoredWhole) {
  const File file = read("{\"text\": \"ab\"}\n\n{\"text\": \"c\"}\r\n");
  ASSERT_EQ(file.examples->size(), 2);
  EXPECT_EQ(row(file, 0).ids, (Ids{T::begin, 'a', 'b', T::end}));
  EXPECT_EQ(row(file, 0).labels, row(file, 0).ids);
  EXPECT_EQ(row(file, 0).document_starts, Ids{0});
  EXPECT_EQ(row(file, 1).ids, (Ids{T::begin, 'c', T::end}));
  EXPECT_EQ(file.tally.kind, "text");
  EXPECT_EQ(file.tally.tokens, 7);
  EXPECT_EQ(file.tally.scored, 5) << "all but the first of each";
  EXPECT_EQ(file.tally.text_bytes, 3u);
  EXPECT_EQ(file.tally.text_tokens, 3u);
}

TEST_F(ExamplesTest, OfPromptAndCompletionTheCompletionIsScored) {
  const File file = read("{\"completion\": \"cd\", \"prompt\": \"ab\"}\n{\"prompt\": \"\", \"completion\": \"x\"}\n");
  EXPECT_EQ(row(file, 0).ids, (Ids{T::begin, 'a', 'b', 'c', 'd', T::turn_end}));
  EXPECT_EQ(row(file, 0).labels, (Ids{-100, -100, -100, 'c', 'd', T::turn_end}));
  EXPECT_EQ(row(file, 1).labels, (Ids{-100, 'x', T::turn_end}));
  EXPECT_EQ(file.tally.scored, 5);
}

TEST_F(ExamplesTest, OfMessagesTheAssistantIsScored) {
  const std::string line =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"a\"},"
      " {\"role\": \"user\", \"content\": \"v\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n";
  const auto turn = [](const std::string& role, char content) {
    Ids ids = {T::turn_begin};
    ids.insert(ids.end(), role.begin(), role.end());
    ids.insert(ids.end(), {'\n', content, T::turn_end, '\n'});
    return ids;
  };
  Ids ids = {T::begin};
  for (const auto& part : {turn("user", 'u'), turn("assistant", 'a'), turn("user", 'v'), turn("assistant", 'b')})
    ids.insert(ids.end(), part.begin(), part.end());
  options_.max_length = 100;
  const Row chat = row(read(line), 0);
  EXPECT_EQ(chat.ids, ids);
  Ids labels(ids.size(), -100);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    if ((ids[i] == 'a' || ids[i] == 'b') && ids[i + 1] == T::turn_end) {
      labels[i] = ids[i];
      labels[i + 1] = ids[i + 1];
    }
  EXPECT_EQ(chat.labels, labels);
  options_.assistant_only = false;
  Ids all = ids;
  all[0] = -100;  // the tokenizer's own prefix
  EXPECT_EQ(row(read(line), 0).labels, all);
}

TEST_F(ExamplesTest, LongExamplesAreCutAndThoseWithNothingToScoreLeftOut) {
  options_.max_length = 4;
  const File file = read(
      "{\"prompt\": \"a\", \"completion\": \"bcdef\"}\n"
      "{\"prompt\": \"abc\", \"completion\": \"d\"}\n"
      "{\"prompt\": \"ab\", \"completion\": \"c\"}\n");
  ASSERT_EQ(file.examples->size(), 2);
  EXPECT_EQ(row(file, 0).ids, (Ids{T::begin, 'a', 'b', 'c'}));
  EXPECT_EQ(row(file, 1).labels, (Ids{-100, -100, -100, 'c'}));
  EXPECT_EQ(file.tally.dropped, 1);
  EXPECT_EQ(file.tally.cut, 2);
  EXPECT_EQ(complaint("{\"prompt\": \"abcd\", \"completion\": \"e\"}\n"),
            "e.jsonl: none of its 1 examples has a scored token within the first 4 tokens: raise --max_seq_length or "
            "shorten the prompts");
}

TEST_F(ExamplesTest, AnotherTextFieldDecidesByItself) {
  options_.text_field = "prompt";
  const File file = read("{\"prompt\": \"ab\", \"completion\": \"c\"}\n");
  EXPECT_EQ(file.tally.kind, "text");
  EXPECT_EQ(row(file, 0).ids, (Ids{T::begin, 'a', 'b', T::end}));
  EXPECT_EQ(file.tally.unused_fields, std::set<std::string>{"completion"});
}

TEST_F(ExamplesTest, OtherFieldsAreNamed) {
  const File file = read("{\"text\": \"a\", \"url\": 1}\n{\"id\": {}, \"text\": \"b\", \"url\": null}\n");
  EXPECT_EQ(file.tally.unused_fields, (std::set<std::string>{"id", "url"}));
}

TEST_F(ExamplesTest, BadLinesAreNamed) {
  EXPECT_EQ(complaint("\n{\"text\": 5}\n"), "e.jsonl:2:10: expected a string, found an integer");
  EXPECT_EQ(complaint("[\"text\"]\n"), "e.jsonl:1:1: expected an object, found an array");
  for (const char* columns : {"{\"prompt\": \"a\"}\n", "{\"completion\": \"a\"}\n", "{\"texts\": \"a\"}\n"})
    EXPECT_TRUE(complaint(columns).starts_with("e.jsonl:1:1: ")) << complaint(columns);  // see corpus/columns.h
  EXPECT_EQ(complaint("{\"text\": \"a\"}\n{\"prompt\": \"b\", \"completion\": \"c\"}\n"),
            "e.jsonl:2:1: contains prompt and completion, but e.jsonl:1:1 contains text: all examples of a file must "
            "be of one kind");
  EXPECT_EQ(complaint("{\"text\": \"a\"}\n{\"text\": \"\xFF\"}\n"), "e.jsonl:2:11: not valid UTF-8");
  EXPECT_EQ(complaint("{\"text\": \"a\"\n"),
            "e.jsonl:1:13: expected ',' or '}' in an object, found the end of the line");
  EXPECT_EQ(complaint(""), "e.jsonl: is empty: use a file with at least one row");
  EXPECT_EQ(complaint(" \n\n"), "e.jsonl: contains no records: use a file with at least one record");
  options_.vocab_size = 100;
  EXPECT_EQ(complaint("{\"text\": \"a\"}\n"),
            "e.jsonl:1:1: a token has id 256, but the model's vocabulary has 100 entries: tokenizer and model do not "
            "match");
}

TEST_F(ExamplesTest, BadConversationsAreNamed) {
  const auto with = [&](const std::string& messages) { return complaint("{\"messages\": " + messages + "}\n"); };
  EXPECT_EQ(with("\"a\""), "e.jsonl:1:14: expected an array, found a string");
  EXPECT_NE(with("[{\"role\": \"assistant\"}]").find("e.jsonl:1:15: "), std::string::npos);
  EXPECT_NE(complaint("{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n", FakeTokenizer())
                .find("e.jsonl:1:1: contains messages, but the tokenizer '' comes with no chat template"),
            std::string::npos);
}

TEST_F(ExamplesTest, EmptyCellsAreLeftOutAndCounted) {
  const File texts = read("{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": null}\n{\"text\": \"\"}\n");
  EXPECT_EQ(texts.examples->size(), 1);
  EXPECT_EQ(row(texts, 0).ids, (Ids{T::begin, 'a', 'b', T::end}));
  EXPECT_EQ(texts.tally.left_out.at("\"text\" is empty").count, 2);
  EXPECT_TRUE(texts.tally.left_out.at("\"text\" is empty").place.ends_with("e.jsonl:2:1"));
  EXPECT_EQ(texts.tally.left_out.at("\"text\" is null").count, 1);
  EXPECT_EQ(texts.tally.dropped, 0);
  EXPECT_EQ(texts.tally.text_bytes, 2u);

  const std::string user = "{\"role\": \"user\", \"content\": \"u\"}";
  const std::string empty[] = {"{\"messages\": []}",
                               "{\"messages\": null}",
                               "{\"messages\": [" + user + "]}",
                               "{\"messages\": [" + user + ", {\"role\": \"assistant\", \"content\": \"\"}]}",
                               "{\"messages\": [" + user + ", {\"role\": \"assistant\", \"content\": null}]}",
                               "{\"messages\": [{\"role\": \"user\", \"content\": null}]}",
                               "{\"prompt\": null, \"completion\": \"x\"}",
                               "{\"prompt\": \"a\", \"completion\": \"\"}",
                               "{\"prompt\": [" + user + "], \"completion\": []}",
                               "{\"instruction\": \"a\", \"output\": null}",
                               "{\"input_ids\": []}",
                               "{\"input_ids\": [5, 6], \"attention_mask\": [0, 0]}"};
  for (const std::string& line : empty) {
    const File file =
        read("{\"messages\": [" + user + ", {\"role\": \"assistant\", \"content\": \"a\"}]}\n" + line + "\n");
    EXPECT_EQ(file.examples->size(), 1) << line;
    EXPECT_EQ(file.tally.all_left_out(), 1) << line;
  }
  EXPECT_EQ(
      complaint("{\"text\": \"\"}\n{\"text\": null}\n"),
      "e.jsonl: nothing can be learned from its 2 records: 1 left out: \"text\" is empty (e.jsonl:1:1); 1 left out: "
      "\"text\" is null (e.jsonl:2:1)");
}

TEST_F(ExamplesTest, WhatIsLeftOutIsTold) {
  DataConfig config;
  config.train_file = write("{\"text\": \"a\"}\n{\"text\": \"\"}\n{\"text\": \"\"}\n", "told.jsonl");
  const Datasets data = open_datasets(config, tokenizer_, 4, 260, false);
  ASSERT_EQ(data.warnings.size(), 1u);
  EXPECT_EQ(
      data.warnings[0].substr(folder_.path().size()),
      "/told.jsonl: 2 of 3 records were left out: \"text\" is empty (first at " + folder_.path() + "/told.jsonl:2:1)");
}

TEST_F(ExamplesTest, RowsOfTokens) {
  const File file = read(
      "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, -100]}\n"
      "{\"input_ids\": [0, 8, 9, 0], \"labels\": [-100, 8, 9, -100], \"attention_mask\": [0, 1, 1, 0]}\n");
  EXPECT_EQ(row(file, 0).ids, (Ids{5, 6, 7})) << "no end is added";
  EXPECT_EQ(row(file, 0).labels, (Ids{-100, 6, -100}));
  EXPECT_EQ(row(file, 1).ids, (Ids{8, 9})) << "without padding";
  EXPECT_EQ(row(file, 1).labels, (Ids{8, 9}));
  EXPECT_EQ(row(read("{\"input_ids\": [5, 6]}\n"), 0).labels, (Ids{5, 6}));
  const std::string masks =
      "{\"input_ids\": [5, 6, 7], \"completion_mask\": [0, 1, 1], \"assistant_masks\": [1, 1, 0]}\n";
  EXPECT_EQ(row(read(masks), 0).labels, (Ids{-100, 6, -100}));
  options_.completion_only = false;
  EXPECT_EQ(row(read(masks), 0).labels, (Ids{5, 6, -100}));
  EXPECT_EQ(
      complaint("{\"input_ids\": [5, 6], \"labels\": [5, 7]}\n"),
      "e.jsonl:1:33: \"labels\" has 7 at 1, where the token is 6: a label must be its token, or -100 where it is not "
      "scored");
  EXPECT_EQ(complaint("{\"input_ids\": [5, 6], \"labels\": [5]}\n"),
            "e.jsonl:1:33: \"labels\" has 1 items, but \"input_ids\" has 2: they need one item per token");
  EXPECT_NE(complaint("{\"input_ids\": [5], \"labels\": [5]}\n{\"input_ids\": [5]}\n").find("one kind"),
            std::string::npos)
      << "a row that does not specify its scored tokens";
  EXPECT_NE(complaint("{\"input_ids\": [5, 260]}\n").find("a token has id 260"), std::string::npos);
}

TEST_F(ExamplesTest, EndsThatTheTextBringsComeOnce) {
  class Ended : public MarkedTokenizer {
   public:
    std::vector<std::int32_t> encode(std::string_view text) const override {
      std::vector<std::int32_t> ids;
      for (const char c : text) ids.push_back(c == '^' ? begin : c == '$' ? end : static_cast<unsigned char>(c));
      return ids;
    }
    std::vector<std::int32_t> suffix() const override { return {end}; }
  } ended;
  const auto ids = [&](const std::string& line) {
    std::vector<std::string> notes;
    const auto request = examples_request({corpus::source_file(write(line + "\n"))}, ended, options_, 1, notes);
    corpus::EncodedRecord out;
    request.encode(parse_json(line, "line"), out);
    return out.ids;
  };
  EXPECT_EQ(ids("{\"text\": \"^a$\"}"), ids("{\"text\": \"a\"}"));
  EXPECT_EQ(ids("{\"text\": \"a\"}"), (std::vector<std::int32_t>{T::begin, 'a', T::end}));
  EXPECT_EQ(ids("{\"prompt\": \"^a\", \"completion\": \"b$\"}"), ids("{\"prompt\": \"a\", \"completion\": \"b\"}"));
  EXPECT_EQ(ids("{\"prompt\": \"\", \"completion\": \"^b\"}"), ids("{\"prompt\": \"\", \"completion\": \"b\"}"));
  options_.pairs = true;
  EXPECT_EQ(ids("{\"prompt\": \"^a\", \"chosen\": \"b$\", \"rejected\": \"c$\"}"),
            ids("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}"));
  EXPECT_EQ(std::ssize(ids("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}")), 10);
}

/// A model's own template, without generation marks.
std::shared_ptr<const text::ChatTemplate> plain_template(const std::string& end = ".") {
  return std::make_shared<const text::ChatTemplate>(
      text::ChatTemplate::Source{"{{ 'T' ~ tools[0].name if tools else '' }}{% for m in messages %}{{ m.role[0] ~ "
                                 "m.content ~ '" +
                                     end + "' }}{% endfor %}{{ 'a' if add_generation_prompt else '' }}",
                                 "t"},
      std::nullopt, text::ChatTemplate::Tokens{});
}

TEST_F(ExamplesTest, OfMessagesThatCompleteAPromptTheCompletionIsScored) {
  options_.chat = plain_template();
  const auto message = [](const char* role, const char* content) {
    return concat("{\"role\": \"", role, "\", \"content\": \"", content, "\"}");
  };
  const std::string history = message("user", "x") + ", " + message("assistant", "y") + ", " + message("user", "z");
  const std::string line = "{\"prompt\": [" + history + "], \"completion\": [" + message("assistant", "p") + ", " +
                           message("tool", "q") + ", " + message("assistant", "r") + "]}\n";
  const Row mine = row(read(line), 0);
  EXPECT_EQ(mine.ids, (Ids{'u', 'x', '.', 'a', 'y', '.', 'u', 'z', '.', 'a', 'p', '.', 't', 'q', '.', 'a', 'r', '.'}));
  EXPECT_EQ(mine.labels, (Ids{-100, -100, -100, -100, -100, -100, -100, -100, -100, -100, 'p', '.', -100, -100, -100,
                              -100, 'r', '.'}));
  options_.assistant_only = false;  // TRL's default: the whole completion
  EXPECT_EQ(row(read(line), 0).labels,
            (Ids{-100, -100, -100, -100, -100, -100, -100, -100, -100, -100, 'p', '.', 't', 'q', '.', 'a', 'r', '.'}));
  options_.completion_only = false;
  EXPECT_EQ(row(read(line), 0).labels, mine.ids);
  options_.assistant_only = true;
  EXPECT_EQ(row(read(line), 0).labels, (Ids{-100, -100, -100, -100, 'y', '.', -100, -100, -100, -100, 'p', '.', -100,
                                            -100, -100, -100, 'r', '.'}));
  const std::string texts = "{\"prompt\": \"ab\", \"completion\": \"c\"}\n";
  EXPECT_EQ(row(read(texts), 0).labels, (Ids{-100, 'a', 'b', 'c', T::turn_end}));
}

TEST_F(ExamplesTest, MembersThatTheTemplateDoesNotReadAreNamed) {
  options_.chat = plain_template();
  const File file = read(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"x\", \"weight\": 0, \"name\": null}, {\"role\": "
      "\"assistant\", "
      "\"content\": \"y\"}], \"tools\": [{\"name\": \"f\"}], \"documents\": [{}], \"chat_template_kwargs\": {\"mood\": "
      "1}, "
      "\"id\": 1}\n");
  EXPECT_EQ(file.tally.unused_fields,
            (std::set<std::string>{"chat_template_kwargs.mood", "documents", "id", "messages.weight"}));
}

TEST_F(ExamplesTest, AModelsTemplateWritesTheConversationWhole) {
  options_.chat = plain_template();
  const std::string messages =
      "\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"yz\"}]";
  const Row chat = row(read("{" + messages + "}\n"), 0);
  EXPECT_EQ(chat.ids, (Ids{'u', 'x', '.', 'a', 'y', 'z', '.'})) << "the tokenizer adds nothing around it";
  EXPECT_EQ(chat.labels, (Ids{-100, -100, -100, -100, 'y', 'z', '.'}));
  options_.assistant_only = false;
  EXPECT_EQ(row(read("{" + messages + "}\n"), 0).labels, chat.ids);
  for (const std::string tools : {"[{\"name\": \"f\"}]", "\"[{\\\"name\\\": \\\"f\\\"}]\""})
    EXPECT_EQ(row(read("{" + messages + ", \"tools\": " + tools + "}\n"), 0).ids,
              (Ids{'T', 'f', 'u', 'x', '.', 'a', 'y', 'z', '.'}))
        << tools;
}

TEST_F(ExamplesTest, AnotherTemplateHasOtherTokensInTheCache) {
  const std::string chats = write(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}\n");
  const std::string texts = write("{\"text\": \"x\"}\n", "t.jsonl");
  const auto settings = [&](const std::string& path, const std::string& end) {
    options_.chat = plain_template(end);
    std::vector<std::string> notes;
    return examples_request({corpus::source_file(path)}, tokenizer_, options_, 1, notes).settings;
  };
  EXPECT_NE(settings(chats, "."), settings(chats, "!"));
  EXPECT_EQ(settings(chats, "."), settings(chats, "."));
  EXPECT_EQ(settings(texts, "."), settings(texts, "!")) << "texts are independent of it";
}

TEST_F(ExamplesTest, SeveralBadLinesAreListedAtOnceUpToTwenty) {
  EXPECT_EQ(complaint("{}}\n{\"text\": \"fine\"}\n{\"text\": 1}\n"),
            "e.jsonl: 2 unusable records:\n"
            "  e.jsonl:1:3: expected the end of the line after the value, found '}'\n"
            "  e.jsonl:3:10: expected a string, found an integer");
  std::string text;
  for (int i = 0; i < 25; ++i) text += "{\"text\": 1}\n";
  const std::string what = complaint(text);
  EXPECT_TRUE(what.starts_with("e.jsonl: the first 20 unusable records:\n  e.jsonl:1:10: ")) << what;
  EXPECT_TRUE(what.ends_with("\n  e.jsonl:20:10: expected a string, found an integer\n  ... and more")) << what;
}

/// A part of a file does not know its first line's number, so lines are counted from the beginning when the number is
/// needed.
TEST_F(ExamplesTest, GoodLinesOfALargeFileAreReadOnce) {
  const auto bytes_read = [] {
    std::ifstream counters("/proc/self/io");
    std::string name;
    std::uint64_t bytes = 0;
    counters >> name >> bytes;
    EXPECT_EQ(name, "rchar:");
    return bytes;
  };
  const std::string words(1000, 'w');
  const std::string lines[] = {"{\"text\": \"" + words + "\"}\n",
                               "{\"prompt\": \"" + words + "\", \"completion\": \"c\"}\n",
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"" + words +
                                   "\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}\n"};
  options_.max_length = 2000;
  for (const std::string& line : lines) {
    SCOPED_TRACE(line.substr(0, 12));
    std::string text;
    while (text.size() < std::size_t{4} << 20) text += line;
    const std::string path = write(text);
    const auto before = bytes_read();
    const File file = read_file(path);
    EXPECT_EQ(static_cast<std::size_t>(file.examples->size()), text.size() / line.size());
    EXPECT_LT(bytes_read() - before, 6 * text.size());  // hashed, read, and the written shards read back
  }
}

TEST_F(ExamplesTest, TheNumberOfThreadsChangesNothing) {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text += concat("{\"text\": \"", std::string(static_cast<std::size_t>(i % 37 + 1), 'a' + i % 26), "\"}\n");
  text += concat("{\"text\": \"", std::string(10'000'000, 'z'), "\"}\n");
  text += "{\"text\": \"last\"}\n";
  const std::string path = write(text);
  std::uint64_t seen = 0;
  const auto progress = [&](const std::string& name, std::uint64_t done, std::uint64_t of) {
    EXPECT_EQ(name, path);
    EXPECT_GE(done, seen);
    EXPECT_EQ(of, text.size());
    seen = done;
  };
  const File one = read_file(path, 1, progress);
  EXPECT_EQ(seen, text.size());
  const File four = read_file(path, 4);
  ASSERT_EQ(one.examples->size(), 502);
  ASSERT_EQ(four.examples->size(), 502);
  EXPECT_EQ(one.tally.cut, 1);
  for (std::int64_t i = 0; i < 502; ++i) EXPECT_EQ(row(one, i).labels, row(four, i).labels);
  EXPECT_EQ(one.examples->length(500), 64);
}

}  // namespace
}  // namespace tessera::data
