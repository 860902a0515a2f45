// Conversations rendered by a model's template: the files read from a folder, the detected assistant turns, and refused
// input.

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/parted_tokens.h>
#include <tests/error_of.h>
#include <tests/paths.h>

namespace tessera::text {
namespace {

using testing::error_of;

const std::string templates = tessera::testing::source_path("tests/fixtures/chat_templates");

ChatTemplate chat_of(const std::string& file, std::vector<std::string> special) {
  ChatTemplate::Tokens tokens{{{"bos_token", "<s>"}, {"eos_token", "</s>"}}, std::move(special)};
  return ChatTemplate({read_file(path_join(templates, file)), file}, std::nullopt, std::move(tokens));
}

Value json(const std::string& text) { return parse_json(text, "chat"); }

std::vector<std::string> scored(const ChatTemplate& chat, const Value& messages, const ChatOptions& options = {}) {
  std::vector<std::string> said;
  std::string whole;
  for (const Piece& piece : chat.scored_pieces(messages, options)) {
    if (piece.scored) said.push_back(piece.text);
    whole += piece.text;
  }
  EXPECT_EQ(whole, chat.render(messages, options).text);
  return said;
}

const Value two_turns = json(
    R"([{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Bye."}, {"role": "assistant", "content": "See you"}])");

TEST(ChatTemplate, ChatMlIsTheFallback) {
  const ChatTemplate chat = ChatTemplate::chatml();
  EXPECT_EQ(
      chat.render(two_turns, {.add_generation_prompt = true}).text,
      "<|im_start|>user\nHi?<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
      "<|im_start|>assistant\nSee you<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(scored(chat, two_turns), (std::vector<std::string>{"Hello!<|im_end|>", "See you<|im_end|>"}));
  EXPECT_NE(error_of([&] { chat.render(json(R"([{"role": "bot", "content": ""}])")); }).find("unknown role 'bot'"),
            std::string::npos);
}

TEST(ChatTemplate, GenerationBlocksSayWhatIsScored) {
  EXPECT_EQ(scored(chat_of("trl/qwen2_5_training.jinja", {"<|im_end|>"}), two_turns),
            (std::vector<std::string>{"\nHello!<|im_end|>\n", "\nSee you<|im_end|>\n"}));
}

TEST(ChatTemplate, TurnsAreFoundByWhatTheTextGrowsBy) {
  EXPECT_EQ(scored(chat_of("trl/qwen2_5.jinja", {"<|im_end|>"}), two_turns),
            (std::vector<std::string>{"Hello!<|im_end|>", "See you<|im_end|>"}));
  EXPECT_EQ(scored(chat_of("axolotl/mistral_v1.jinja", {"</s>"}), two_turns),
            (std::vector<std::string>{" Hello!</s>", " See you</s>"}));
}

TEST(ChatTemplate, TurnsThatAreWrittenOtherwiseLaterAreFoundByAStandIn) {
  // Qwen3 writes thoughts, even empty ones, only in the last turn; Phi-3 ends the conversation with another token.
  EXPECT_EQ(scored(chat_of("trl/qwen3.jinja", {"<|im_end|>"}), two_turns),
            (std::vector<std::string>{"Hello!<|im_end|>", "<think>\n\n</think>\n\nSee you<|im_end|>"}));
  EXPECT_EQ(scored(chat_of("trl/phi3.jinja", {"<|end|>", "</s>"}), two_turns),
            (std::vector<std::string>{"Hello!<|end|>", "See you<|end|>\n</s>"}));
}

TEST(ChatTemplate, NoScoreIsGuessed) {
  const ChatTemplate counting({"{% for m in messages %}{{ m.content }}{{ messages|length }}{% endfor %}", "t"},
                              std::nullopt, {});
  EXPECT_NE(error_of([&] {
              counting.scored_pieces(two_turns);
            }).find("message 2: the template writes this turn of the assistant differently when others follow it"),
            std::string::npos);
}

TEST(ChatTemplate, ASpecialTokenInAMessageIsText) {
  const ChatTemplate chat = chat_of("trl/qwen2_5.jinja", {"<|im_start|>", "<|im_end|>"});
  const auto parts = [&](const std::string& messages, const ChatOptions& options = {}) {
    return between_partings(chat.render(json(messages), options).text);
  };
  EXPECT_EQ(parts(R"([{"role": "user", "content": "a"}])").size(), 1u);
  const auto said = parts(R"([{"role": "user", "content": "a<|im_end|>b"}])");
  ASSERT_EQ(said.size(), 2u);
  EXPECT_TRUE(said[0].ends_with("user\na<")) << said[0];
  EXPECT_EQ(said[1], "|im_end|>b<|im_end|>\n");
  EXPECT_NE(chat.special_token_in(json(R"([{"content": [{"type": "text", "text": "<|im_start|>"}]}])")), nullptr);
  EXPECT_EQ(parts(R"([{"role": "user", "content": "a"}])", {.tools = json(R"([{"name": "<|im_end|>"}])")}).size(), 2u);
  const auto mark = parts("[{\"role\": \"user\", \"content\": \"a" + std::string(parting) + "b\"}]");
  ASSERT_EQ(mark.size(), 1u) << "the mark itself counts as text";
  EXPECT_NE(mark[0].find(concat("a", parting, "b")), std::string::npos);
  EXPECT_EQ(scored(chat, json(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "<|im_end|>"}])")),
            (std::vector<std::string>{concat("<", parting, "|im_end|><|im_end|>")}));
}

TEST(ChatTemplate, SpecialTokensOfTheTokenizerAreKnownWithoutFiles) {
  const auto byte = load_tokenizer("byte");
  const std::string text = "{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}";
  const ChatTemplate chat = load_chat_template(*byte, "byte", text);
  const ChatEncoder encoder(*byte);
  const auto ids = [&](const char* content) {
    Value message = Value::make_object({{"role", Value::of("user")}, {"content", Value::of(content)}});
    return encoder.encode(chat.render(Value::make_array({std::move(message)})).text, true);
  };
  EXPECT_EQ(ids("a").size(), 2u);
  EXPECT_EQ(ids("<|endoftext|>").size(), 14u);
}

TEST(ChatTemplate, WhatIsNoConversationIsNamed) {
  const ChatTemplate chat = ChatTemplate::chatml();
  const auto complaint = [&](const char* messages) { return error_of([&] { chat.render(json(messages)); }); };
  EXPECT_EQ(complaint("[]"), "the conversation has no messages");
  EXPECT_EQ(complaint("[1]"), "message 1: must be an object with \"role\" and \"content\"");
  EXPECT_EQ(complaint("[{}]"), "message 1: has no \"role\", which must be a text");
}

TEST(ChatTemplate, ALastMessageIsContinued) {
  const ChatTemplate chat = ChatTemplate::chatml();
  EXPECT_TRUE(chat.render(two_turns, {.continue_final_message = true}).text.ends_with("assistant\nSee you"));
}

/// A test fixture with its own folder.
class ChatFolder : public ::testing::Test {
 protected:
  ChatFolder() { std::filesystem::create_directories(folder_); }
  ~ChatFolder() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(path_join(folder_, name)) << text; }
  std::string hello(const std::string& file = "") const {
    return load_chat_template(*byte_, folder_, file).render(json(R"([{"role": "user", "content": "hello"}])")).text;
  }

  const std::string folder_ = path_join(::testing::TempDir(), concat("chat_folder_", ::getpid()));
  const std::shared_ptr<const Tokenizer> byte_ = load_tokenizer("byte");
};

TEST_F(ChatFolder, ATemplateIsReadFromItsFileOrTheConfiguration) {
  EXPECT_NE(error_of([&] { hello(); }).find("comes with no chat template"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": "{{ bos_token }}C:{{ messages[0].content }}",
         "bos_token": {"content": "<b>"}, "added_tokens_decoder": {"1": {"content": "hello", "special": false}}})");
  EXPECT_EQ(hello(), "<b>C:hello");
  write("chat_template.jinja", "F:{{ messages[0].content }}");
  EXPECT_EQ(hello(), "F:hello");
  write("other.jinja", "O");
  EXPECT_EQ(hello(path_join(folder_, "other.jinja")), "O");
  write("other.jinja", "\xEF\xBB\xBFO");
  EXPECT_EQ(hello(path_join(folder_, "other.jinja")), "O") << "without the byte order mark";
  EXPECT_NE(error_of([&] { hello("none.jinja"); }).find("--chat_template none.jinja: neither an existing file"),
            std::string::npos);
}

TEST_F(ChatFolder, NamedTemplatesAndSpecialTokens) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "D{{ messages[0].content }}"},
         {"name": "tool_use", "template": "T"}], "added_tokens_decoder": {"1": {"content": "<x>", "special": true}}})");
  EXPECT_EQ(hello(), "Dhello");
  const ChatTemplate chat = load_chat_template(*byte_, folder_);
  EXPECT_EQ(chat.render(two_turns, {.tools = json("[]")}).text, "T");
  EXPECT_EQ(*chat.special_token_in(json(R"([{"role": "user", "content": "a<x>"}])")), "<x>");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": ""}]})");
  EXPECT_NE(error_of([&] { hello(); }).find("chat templates rag but none is called default"), std::string::npos);
}

}  // namespace
}  // namespace tessera::text
