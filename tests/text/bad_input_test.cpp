// Errors in a tokenizer.json are reported with file, line and component; unsupported content is never read silently.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/bpe/regex_split.h>
#include <tessera/text/tokenizer_json.h>

namespace tessera::text {
namespace {

/// A small valid file as a tree, to be corrupted by the tests.
Value small_tree() {
  BpeFile file;
  for (int byte = 0; byte < 256; ++byte)
    file.vocabulary.emplace_back(ByteAlphabet::get().spell(std::string(1, static_cast<char>(byte))), byte);
  file.vocabulary.emplace_back("ab", 256);
  file.vocabulary.emplace_back("<|endoftext|>", 257);
  file.merges = {{"a", "b"}};
  file.specials = {{"<|endoftext|>", 257}};
  return parse_json(tokenizer_json(file), "t.json");
}

Value parsed(const std::string& json) { return parse_json(json, "part"); }

Value with_model(const std::string& key, const std::string& json) {
  Value tree = small_tree();
  Value model = tree.at("model");
  model.set(key, parsed(json));
  tree.set("model", model);
  return tree;
}

Value with(const std::string& key, const std::string& json) {
  Value tree = small_tree();
  tree.set(key, parsed(json));
  return tree;
}

std::string complaint(const std::string& json) {
  try {
    parse_tokenizer_json(json, "t.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void expect_refused(const Value& tree, const std::string& needle) {
  const std::string message = complaint(dump_json(tree));
  EXPECT_NE(message.find("t.json:"), std::string::npos) << message;
  EXPECT_NE(message.find(needle), std::string::npos) << message;
}

TEST(TokenizerJson, TheUndamagedFileLoads) {
  const auto tokenizer = parse_tokenizer_json(dump_json(small_tree()), "t.json");
  EXPECT_EQ(tokenizer->encode("ab<|endoftext|>b"), (std::vector<std::int32_t>{256, 257, 'b'}));
}

TEST(TokenizerJson, UnsupportedComponentsAreNamed) {
  expect_refused(with_model("type", R"("Odd")"), "model Odd is not supported; supported: BPE, Unigram");
  expect_refused(with_model("type", R"("Unigram")"), "expected an array");
  expect_refused(with_model("dropout", "0.1"), "dropout");
  expect_refused(with("normalizer", R"({"type": "Odd"})"), "normalizer Odd is not supported; supported: NFC");
  expect_refused(with("decoder", R"({"type": "Odd"})"), "decoder Odd is not supported");
  expect_refused(with("post_processor", R"({"type": "Odd"})"), "Odd");
  expect_refused(with("pre_tokenizer", R"({"type": "Odd"})"), "pre_tokenizer Odd is not supported");
}

TEST(TokenizerJson, BadStepsAreNamed) {
  const auto steps = [](const std::string& inner) {
    return with("pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [)" + inner + "]}");
  };
  const std::string last = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  const auto cut = [](const std::string& pattern, const std::string& behavior) {
    return R"({"type": "Split", "pattern": )" + pattern + R"(, "behavior": ")" + behavior + R"(", "invert": false},)";
  };
  expect_refused(steps(cut(R"({"Regex": "a"})", "Isolate") + last), "unknown Split behavior");
  expect_refused(steps(cut(R"({"Regex": "a*"})", "Isolated") + last), "match the empty string");
  expect_refused(steps(cut(R"({"String": ""})", "Isolated") + last), "empty Split pattern");
  expect_refused(steps(cut(R"({"Glob": "a"})", "Isolated") + last), "Regex");
}

TEST(TokenizerJson, PostProcessorsMustMakeSense) {
  const auto single = [](const std::string& pieces) {
    return with("post_processor",
                R"({"type": "TemplateProcessing", "single": [)" + pieces +
                    R"(], "special_tokens": {"x": {"id": "x", "ids": [7]}, "y": {"id": "y", "ids": [999]}}})");
  };
  const std::string text = R"({"Sequence": {"id": "A", "type_id": 0}})";
  EXPECT_EQ(complaint(dump_json(single(R"({"SpecialToken": {"id": "x"}},)" + text))), "");
  expect_refused(single(""), "lacks Sequence A");
  expect_refused(single(text + "," + text), "once");
  expect_refused(single(text + R"(,{"SpecialToken": {"id": "z"}})"), "\"z\" is not among special_tokens");
  expect_refused(single(text + R"(,{"SpecialToken": {"id": "y"}})"), "999");
  const std::string bert = R"({"type": "BertProcessing", "cls": ["x", 1], "sep": ["y", 2]})";
  EXPECT_EQ(complaint(dump_json(with("post_processor", bert))), "");
  expect_refused(with("post_processor", R"({"type": "Sequence", "processors": [)" + bert + "," + bert + "]}"),
                 "second");
}

TEST(TokenizerJson, MissingBytesBecomeTheUnknownToken) {
  const std::string head =
      R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE",
      "unk_token": "?", "vocab": {"a": 0, "b": 1, "ab": 2, "?": 3}, "merges": ["#version: 0.2", "a b"], "fuse_unk": )";
  EXPECT_EQ(parse_tokenizer_json(head + "false}}", "t.json")->encode("xyabz"), (std::vector<std::int32_t>{3, 3, 2, 3}));
  EXPECT_EQ(parse_tokenizer_json(head + "true}}", "t.json")->encode("xyabz"), (std::vector<std::int32_t>{3, 2, 3}));
}

TEST(TokenizerJson, TwoAddedTokensWithOneContent) {
  const std::string flags =
      R"(, "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": false})";
  Value tree = with("added_tokens", R"([{"id": 258, "content": "caf\u00e9")" + flags +
                                        R"(, {"id": 259, "content": "cafe\u0301")" + flags + "]");
  EXPECT_EQ(complaint(dump_json(tree)), "");
  tree.set("normalizer", parsed(R"({"type": "NFC"})"));
  EXPECT_NE(complaint(dump_json(tree)).find("t.json: the added tokens 258 and 259 have the same content"),
            std::string::npos);
}

TEST(TokenizerJson, ContradictionsAreErrors) {
  expect_refused(with_model("merges", R"([["a", "c"]])"), "\"ac\"");
  expect_refused(with_model("merges", R"(["a  b"])"), "a  b");
  expect_refused(with_model("merges", R"([["a"]])"), "pair");
  expect_refused(with_model("vocab", R"({"a": -1})"), "-1");
  expect_refused(with_model("vocab", R"({"a": 99999999999})"), "99999999999");
  expect_refused(with_model("vocab", R"({"a": 1, "b": 1})"), "twice");
  expect_refused(with("added_tokens", R"([{"id": 5, "content": "<|endoftext|>"}])"), "257");
  expect_refused(with("added_tokens", R"([{"id": 5, "content": "<new>"}])"), "another token");
  expect_refused(with("added_tokens", R"([{"id": 258, "content": ""}])"), "has no content");
}

TEST(TokenizerJson, BrokenFiles) {
  const std::string whole = dump_json(small_tree());
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 2}) {
    EXPECT_NE(complaint(whole.substr(0, size)), "") << size;
  }
  EXPECT_NE(complaint("[]"), "");
  EXPECT_NE(complaint(R"({"model": 3})"), "");
  EXPECT_THROW(load_tokenizer("/nonexistent/tokenizer"), InputError);
  const TemporaryFolder empty;
  EXPECT_THROW(load_tokenizer(empty.path()), InputError);
}

TEST(RegexSplitter, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern : {R"(\d+)", R"(\w)", R"(\bx)", R"(\p{Han})", "^a", "a$", "[a[b]]", "[a&&b]", "a{1,2}+",
                              "(?<=a)b", "[a", "\\", "a*", "(a"}) {
    EXPECT_THROW(RegexSplitter(pattern, "t.json:1:1"), InputError) << pattern;
  }
}

TEST(RegexSplitter, SplitsAsLlama3Does) {
  const RegexSplitter splitter(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
      R"(|\s+(?!\S)|\s+)",
      "t.json:1:1");
  const std::string_view text = "It'S 12345 \xC3\xA9t\xC3\xA9!!\n\n  end  ";
  RegexScratch scratch;
  std::vector<std::string_view> pieces;
  RegexSearch search(splitter, text, scratch);
  while (const auto match = search.next()) pieces.push_back(text.substr(match->begin, match->end - match->begin));
  EXPECT_EQ(pieces, (std::vector<std::string_view>{"It", "'S", " ", "123", "45", " \xC3\xA9t\xC3\xA9", "!!\n\n", " ",
                                                   " end", "  "}));
}

}  // namespace
}  // namespace tessera::text
