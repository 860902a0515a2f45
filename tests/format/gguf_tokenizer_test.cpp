// Converting the tokenizer of a GGUF file to tokenizer.json.

#include "gguf_builder.h"

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/format/gguf/gguf_to_hf.h>
#include <tessera/text/tokenizer.h>
#include <tests/paths.h>

namespace tessera::format {
namespace {

using testing::GgufBuilder;
using testing::tiny_llama;

GgufTokenizer tokenizer_of(const GgufBuilder& builder) {
  const std::string bytes = builder.build();
  const GgufFile file(std::as_bytes(std::span(bytes)), "m.gguf");
  return read_gguf_tokenizer(file, read_gguf_model(file));
}

void expect_refused(const GgufBuilder& builder, const std::vector<std::string>& parts) {
  try {
    tokenizer_of(builder);
    FAIL() << "accepted; expected '" << parts[0] << "'";
  } catch (const InputError& error) {
    const std::string text = error.what();
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
  }
}

std::string compact(const Value& value) { return dump_json(value, -1); }

TEST(GgufTokenizer, VocabularyMergesAndAddedTokens) {
  GgufBuilder b = tiny_llama();
  b.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 1, 4, 1, 5});
  const GgufTokenizer made = tokenizer_of(b);
  const Value json = parse_json(made.json, "tokenizer.json");
  EXPECT_EQ(compact(json.at("model").at("vocab")), compact(parse_json(R"({"<|end|>":0,"x":1,"y":2,"xy":3})", "")));
  EXPECT_EQ(compact(json.at("model").at("merges")), compact(parse_json(R"([["x","y"]])", "")));
  const auto& added = json.at("added_tokens").items();
  ASSERT_EQ(added.size(), 2u);  // [PAD4] fills an id without a token
  EXPECT_EQ(added[0].at("content").as_string(), "<|end|>");
  EXPECT_TRUE(added[0].at("special").as_bool());
  EXPECT_EQ(added[1].at("id").as_int(), 2);
  EXPECT_FALSE(added[1].at("special").as_bool());  // user-defined
  EXPECT_EQ(made.kind, "byte-level BPE (gpt-2)");
  EXPECT_TRUE(made.notes.empty());
}

TEST(GgufTokenizer, SplitsWordsAsItsFamilyDoes) {
  const auto with = [](const char* pre) {
    GgufBuilder b = tiny_llama();
    b.add("tokenizer.ggml.pre", pre);
    return parse_json(tokenizer_of(b).json, "tokenizer.json");
  };
  const Value gpt2 = with("gpt-2");
  EXPECT_EQ(gpt2.at("pre_tokenizer").at("type").as_string(), "ByteLevel");
  EXPECT_TRUE(gpt2.at("pre_tokenizer").at("use_regex").as_bool());
  EXPECT_EQ(compact(with("default").at("pre_tokenizer")), compact(gpt2.at("pre_tokenizer")));

  const Value smollm = with("smollm").at("pre_tokenizer");
  EXPECT_EQ(smollm.at("pretokenizers").items()[0].at("type").as_string(), "Digits");
  EXPECT_TRUE(smollm.at("pretokenizers").items()[0].at("individual_digits").as_bool());
  EXPECT_TRUE(smollm.at("pretokenizers").items()[1].at("use_regex").as_bool());
  EXPECT_FALSE(smollm.at("pretokenizers").items()[1].at("add_prefix_space").as_bool());

  const Value llama = with("llama-bpe");
  EXPECT_NE(compact(llama.at("pre_tokenizer")).find("\\\\p{N}{1,3}"), std::string::npos);
  EXPECT_TRUE(llama.at("model").at("ignore_merges").as_bool());
  EXPECT_FALSE(llama.at("pre_tokenizer").at("pretokenizers").items()[1].at("use_regex").as_bool());
  // Llama-3 texts begin with bos.
  EXPECT_NE(compact(llama.at("post_processor")).find("TemplateProcessing"), std::string::npos);

  const Value qwen = with("qwen2");
  EXPECT_EQ(qwen.at("normalizer").at("type").as_string(), "NFC");
  EXPECT_NE(compact(qwen.at("pre_tokenizer")).find("|\\\\p{N}|"), std::string::npos);
  EXPECT_FALSE(qwen.at("model").at("ignore_merges").as_bool());

  GgufBuilder other = tiny_llama();
  other.add("tokenizer.ggml.pre", "tekken");
  expect_refused(other, {"'tekken'", "gpt-2, default, smollm, llama-bpe", "qwen2", "--no_tokenizer"});
  other.drop("tokenizer.ggml.pre");
  EXPECT_EQ(tokenizer_of(other).notes.size(), 1u);  // assumed, with a note
}

TEST(GgufTokenizer, ConfigurationAndChatTemplate) {
  GgufBuilder b = tiny_llama();
  b.add("tokenizer.chat_template", "{{ 'one' }}")
      .add("tokenizer.ggml.add_bos_token", true)
      .add("tokenizer.ggml.padding_token_id", 1u);
  const GgufTokenizer made = tokenizer_of(b);
  const Value config = parse_json(made.config_json, "tokenizer_config.json");
  EXPECT_EQ(config.at("bos_token").as_string(), "<|end|>");
  EXPECT_EQ(config.at("eos_token").as_string(), "<|end|>");
  EXPECT_EQ(config.at("pad_token").as_string(), "x");
  EXPECT_EQ(config.at("chat_template").as_string(), "{{ 'one' }}");
  EXPECT_EQ(config.at("model_max_length").as_int(), 16);
  EXPECT_TRUE(config.at("add_bos_token").as_bool());
  EXPECT_EQ(config.at("added_tokens_decoder").at("0").at("content").as_string(), "<|end|>");
  EXPECT_NE(made.json.find("TemplateProcessing"), std::string::npos);
  b.add("tokenizer.chat_templates", std::vector<std::string>{"tool"}).add("tokenizer.chat_template.tool", "two");
  const Value list = parse_json(tokenizer_of(b).config_json, "").at("chat_template");
  ASSERT_EQ(list.items().size(), 2u);
  EXPECT_EQ(list.items()[0].at("name").as_string(), "default");
  EXPECT_EQ(list.items()[1].at("template").as_string(), "two");
}

TEST(GgufTokenizer, OurOwnReaderReadsIt) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    GgufBuilder b = tiny_llama();
    b.add("tokenizer.ggml.pre", pre);
    const TemporaryFolder folder;
    const GgufTokenizer made = tokenizer_of(b);
    write_file_atomically(path_join(folder.path(), "tokenizer.json"), made.json);
    write_file_atomically(path_join(folder.path(), "tokenizer_config.json"), made.config_json);
    EXPECT_EQ(text::load_tokenizer(folder.path())->encode("xxy<|end|>y"), (std::vector<std::int32_t>{1, 3, 0, 2}))
        << pre;
  }
  // All bytes and SmolLM's pre-tokenizer: the fixture has a merge of "1" and "2", but every digit is its own word.
  const GgufFile file(tessera::testing::source_path("tests/fixtures/gguf/llama_tiny.gguf"));
  const TemporaryFolder folder;
  write_file_atomically(path_join(folder.path(), "tokenizer.json"),
                        read_gguf_tokenizer(file, read_gguf_model(file)).json);
  const auto tokenizer = text::load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("in the 12<note>"),
            (std::vector<std::int32_t>{262, 261, 3 + ' ', 3 + '1', 3 + '2', 264}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("h\xC3\xA9llo 12<note>")), "h\xC3\xA9llo 12<note>");
}

TEST(GgufTokenizer, ByteLevelBpeOnly) {
  GgufBuilder b = tiny_llama();
  b.add("tokenizer.ggml.model", "llama");
  expect_refused(b, {"'llama' (SentencePiece)", "byte-level BPE", "--no_tokenizer"});
  b.add("tokenizer.ggml.model", "bert");
  expect_refused(b, {"'bert'"});
  b.drop("tokenizer.ggml.model");
  EXPECT_TRUE(tokenizer_of(b).json.empty());  // the file has no tokenizer
}

TEST(GgufTokenizer, InconsistentVocabularies) {
  const auto with = [](auto change) {
    GgufBuilder b = tiny_llama();
    change(b);
    return b;
  };
  using B = GgufBuilder;
  using Texts = std::vector<std::string>;
  expect_refused(with([](B& b) { b.drop("tokenizer.ggml.merges"); }), {"tokenizer.ggml.merges"});
  expect_refused(with([](B& b) { b.drop("tokenizer.ggml.tokens"); }), {"tokenizer.ggml.tokens"});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.merges", Texts{"xy"}); }), {"merge 0", "\"xy\"", "blank"});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.merges", Texts{"x y", "y x"}); }), {"merge 1", "\"yx\""});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.merges", Texts{"x q"}); }), {"merge 0", "\"q\""});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.tokens", Texts{"a", "x", "y", "xy", "x"}); }),
                 {"token 4", "\"x\""});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.tokens", Texts{"a", "x", "y", "xy", ""}); }),
                 {"token 4 is empty"});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1}); }),
                 {"1 entries", "5 tokens"});
  expect_refused(with([](B& b) { b.add("tokenizer.ggml.token_type", Texts{"a"}); }), {"token_type", "string"});
}

}  // namespace
}  // namespace tessera::format
