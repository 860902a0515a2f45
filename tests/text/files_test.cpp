// Tokenizers without tokenizer.json: SentencePiece's .model, tiktoken's ranks, vocab.json with merges.txt. The ids come
// from the libraries that wrote the files, frozen by tests/parity/tokenizer_files.py (which also compares thousands of
// cases).

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/text/bpe/bpe_files.h>
#include <tessera/text/companion_files.h>
#include <tessera/text/sentencepiece/model_json.h>
#include <tessera/text/tokenizer.h>
#include <tests/paths.h>

#include <map>

namespace tessera::text {
namespace {

const std::string files = tessera::testing::source_path("tests/fixtures/text/files");

std::vector<std::int32_t> ids_in(const Value& list) {
  std::vector<std::int32_t> ids;
  for (const Value& id : list.items()) ids.push_back(static_cast<std::int32_t>(id.as_int()));
  return ids;
}

TEST(TokenizerFiles, GiveTheIdsOfTheLibrariesThatWroteThem) {
  std::vector<std::string> names;
  for (const std::string& line : split(trim(read_file(files + "/cases.jsonl")), '\n')) {
    const Value row = parse_json(line, "cases.jsonl");
    names.push_back(row.at("name").as_string());
    const auto tokenizer = load_tokenizer(concat(files, "/", names.back()));
    EXPECT_GT(row.at("cases").items().size(), 10u) << names.back();
    for (const Value& found : row.at("cases").items())
      EXPECT_EQ(tokenizer->encode(found.items()[0].as_string()), ids_in(found.items()[1]))
          << names.back() << ": " << found.items()[0].as_string();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"llama", "gemma", "t5", "tiktoken", "merges"}));
}

TEST(TokenizerFiles, AreSavedAsATokenizerJson) {
  for (const char* name : {"llama", "t5", "tiktoken", "merges"}) {
    const auto tokenizer = load_tokenizer(concat(files, "/", name));
    const TemporaryFolder folder;
    tokenizer->save(folder.path());
    const auto again = load_tokenizer(path_join(folder.path(), "tokenizer.json"));
    EXPECT_EQ(again->encode("In the beginning 12 \xC3\xA9"), tokenizer->encode("In the beginning 12 \xC3\xA9")) << name;
  }
}

TEST(TokenizerFiles, ThoseThatBelongToATokenizerGoAlong) {
  const TemporaryFolder from, to, other;
  const auto put = [&](const std::string& name, const std::string& bytes) {
    write_file_atomically(path_join(from.path(), name), bytes);
  };
  for (const char* name : {"vocab.json", "merges.txt"}) put(name, read_file(concat(files, "/merges/", name)));
  const std::map<std::string, std::string> beside = {{"special_tokens_map.json", "{\"eos_token\": \"x\"}"},
                                                     {"added_tokens.json", "{}"},
                                                     {"tokenizer.model", "a\0b"},
                                                     {"tokenization_mine.py", "pass"},
                                                     {"processor_config.json", "{ }"},
                                                     {"chat_template.json", "{}"}};
  for (const auto& [name, bytes] : beside) put(name, bytes);
  put("README.md", "a person's");
  put("tokenizer_config.json", R"({"eos_token": "</s>"})");
  put("chat_template.jinja", "{{ usual }}");
  make_folders(path_join(from.path(), "additional_chat_templates"));
  put("additional_chat_templates/tool_use.jinja", "{{ tools }}");
  const auto tokenizer = load_tokenizer(path_join(from.path(), "vocab.json"));
  with_companion_files(tokenizer, from.path(), "")->save(to.path());
  for (const auto& [name, bytes] : beside) EXPECT_EQ(read_file(path_join(to.path(), name)), bytes) << name;
  EXPECT_EQ(read_file(path_join(to.path(), "merges.txt")), read_file(files + "/merges/merges.txt"));
  EXPECT_FALSE(path_exists(path_join(to.path(), "README.md")));
  EXPECT_FALSE(path_exists(path_join(to.path(), "chat_template.jinja"))) << "it would override the list";
  const Value config = read_json(path_join(to.path(), "tokenizer_config.json"));
  EXPECT_EQ(config.at("eos_token").as_string(), "</s>");
  EXPECT_EQ(dump_json(config.at("chat_template"), -1),
            R"([{"name":"default","template":"{{ usual }}"},{"name":"tool_use","template":"{{ tools }}"}])");
  with_companion_files(tokenizer, from.path(), "{{ given }}")->save(other.path());
  EXPECT_EQ(read_file(path_join(other.path(), "chat_template.jinja")), "{{ given }}");
  EXPECT_FALSE(read_json(path_join(other.path(), "tokenizer_config.json")).contains("chat_template"));
  EXPECT_FALSE(path_exists(path_join(other.path(), "chat_template.json"))) << "of another template";
  EXPECT_EQ(with_companion_files(tokenizer, "byte", ""), tokenizer);
}

SentencePieceModel small_model() {
  using Type = SentencePiece::Type;
  SentencePieceModel model;
  model.pieces = {{"<unk>", 0, Type::unknown}, {"<s>", 0, Type::control}, {"</s>", 0, Type::control},
                  {"a", -1, Type::normal},     {"b", -2, Type::normal},   {"ab", -3, Type::normal}};
  model.kind = SentencePieceModel::Kind::bpe;
  return model;
}

TEST(SentencePieceModels, ConfigAddsTokensAndWhatStandsAroundTexts) {
  const Value config = parse_json(R"({"add_eos_token": true, "added_tokens_decoder":
      {"6": {"content": "<|user|>", "rstrip": true, "special": true}}})",
                                  "c.json");
  const Value tree = tokenizer_json_of(small_model(), config, "m");
  const auto& added = tree.at("added_tokens").items();
  ASSERT_EQ(added.size(), 4u);
  EXPECT_EQ(added[3].at("content").as_string(), "<|user|>");
  EXPECT_TRUE(added[3].at("rstrip").as_bool());
  EXPECT_EQ(tree.at("post_processor").at("single").items().size(), 3u);  // <s> A </s>
  EXPECT_EQ(dump_json(tree.at("model").at("merges"), -1), R"([["a","b"]])");
  const Value plain = parse_json(R"({"add_bos_token": false})", "c.json");
  EXPECT_EQ(tokenizer_json_of(small_model(), plain, "m").at("post_processor").at("single").items().size(), 1u);
}

template <class Act>
void expect_error(const Act& act, const std::string& needle) {
  try {
    act();
    ADD_FAILURE() << needle;
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(needle), std::string::npos) << error.what();
  }
}

TEST(SentencePieceModels, WhatCannotBeReadIsNamed) {
  const auto read = [](std::string_view bytes) { return [=] { read_sentencepiece_model(bytes, "m.model"); }; };
  expect_error(read(""), "m.model: not a SentencePiece model: it has no pieces");
  expect_error(read("\x0A"), "a number is truncated");
  expect_error(read("\x0A\x05"), "a field of 5 bytes is truncated");
  expect_error(read("\x0B"), "wire type 3");
  expect_error(read("\x0A\x02\x18\x09"), "a piece of type 9");
  expect_error(read("\x0A\x00"), "truncated");
  expect_error(read(std::string_view("\x0A\x03\x0A\x01\xFF", 5)), "not UTF-8");
  SentencePieceModel model = small_model();
  model.kind = SentencePieceModel::Kind::word;
  expect_error([&] { tokenizer_json_of(model, Value(), "m.model"); }, "type word is not supported");
  model = small_model();
  model.pieces.push_back(model.pieces.back());
  expect_error([&] { tokenizer_json_of(model, Value(), "m.model"); }, "pieces 5 and 6 are both \"ab\"");
  const Value config = parse_json(R"({"tokenizer_class": "XLMRobertaTokenizerFast"})", "c.json");
  expect_error([&] { tokenizer_json_of(small_model(), config, "m.model"); }, "XLMRobertaTokenizer numbers");
}

TEST(Tiktoken, WhatCannotBeReadIsNamed) {
  EXPECT_TRUE(looks_like_tiktoken("IQ== 0\nIg== 1\n"));
  EXPECT_FALSE(looks_like_tiktoken("\x0A\x0E\x0A\x05<unk>"));
  const auto read = [](const char* text) { return [=] { tokenizer_json_of_tiktoken(text, Value(), "t.tiktoken"); }; };
  expect_error(read("IQ== 0\nIg==\n"), "t.tiktoken:2: expected a token in base64");
  expect_error(read("IQ== 0\nI?== 1\n"), "t.tiktoken:2: character 2");
  expect_error(read("IQ== 0\nIQ== 1\n"), "t.tiktoken:2: this token already has a rank");
  expect_error(read(""), "no token");
  const Value vocabulary = parse_json(R"({"a": 0, "b": 1, "ab": 2})", "vocab.json");
  expect_error([&] { tokenizer_json_of_merges(vocabulary, "#version: 0.2\na b c\n", Value(), "f"); },
               "f/merges.txt:2: expected two tokens");
}

}  // namespace
}  // namespace tessera::text
