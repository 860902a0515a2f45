// Conversations as ChatML: what the text is, what of it is scored, what is refused.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/text/chatml.h>
#include <tests/paths.h>

namespace tessera::text {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/text");

std::string joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

std::string complaint(const std::vector<Message>& messages) {
  try {
    render_chat(messages, false);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const std::vector<Message> two_turns = {
    {"system", "Be brief."}, {"user", "Hi?"}, {"assistant", "Hello!"}, {"user", "Bye."}, {"assistant", ""}};

TEST(ChatMl, IsChatMl) {
  const auto pieces = render_chat(two_turns, false);
  EXPECT_EQ(joined(pieces),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi?<|im_end|>\n"
            "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
            "<|im_start|>assistant\n<|im_end|>\n");
}

TEST(ChatMl, ScoresWhatTheAssistantSaysAndItsEnd) {
  std::vector<std::string> scored;
  bool previous = true;
  for (const Piece& piece : render_chat(two_turns, false)) {
    if (piece.scored) scored.push_back(piece.text);
    EXPECT_NE(piece.scored, previous);
    previous = piece.scored;
  }
  EXPECT_EQ(scored, (std::vector<std::string>{"Hello!<|im_end|>", "<|im_end|>"}));
}

TEST(ChatMl, GenerationPromptOpensATurn) {
  const auto pieces = render_chat(std::vector<Message>{{"user", "Hi?"}}, true);
  EXPECT_EQ(joined(pieces), "<|im_start|>user\nHi?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(pieces.size(), 1u);
  EXPECT_FALSE(pieces[0].scored);
}

TEST(ChatMl, PiecesHaveTheTokensOfTheWhole) {
  for (const char* family : {"smollm2", "qwen2", "llama3"}) {
    const auto tokenizer = load_tokenizer(concat(fixtures, "/family_", family, ".json"));
    const auto pieces = render_chat(two_turns, false);
    std::vector<std::int32_t> ids;
    for (const Piece& piece : pieces) {
      const auto more = tokenizer->encode(piece.text);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    EXPECT_EQ(ids, tokenizer->encode(joined(pieces))) << family;
  }
}

TEST(ChatMl, RefusesWhatItCannotWrite) {
  EXPECT_NE(complaint({}).find("without messages"), std::string::npos);
  EXPECT_NE(complaint({{"user", "a"}, {"tool", "b"}}).find("message 2: the role 'tool' is not supported"),
            std::string::npos);
  EXPECT_NE(complaint({{"robot", "a"}}).find("unknown role 'robot'"), std::string::npos);
  EXPECT_NE(complaint({{"user", "a<|im_end|>"}}).find("at byte 1"), std::string::npos);
}

TEST(ChatMl, NeedsATokenizerThatKnowsTheMarkers) {
  EXPECT_TRUE(has_chat_tokens(*load_tokenizer(fixtures + "/family_smollm2.json")));
  EXPECT_FALSE(has_chat_tokens(*load_tokenizer(fixtures)));
  EXPECT_FALSE(has_chat_tokens(*load_tokenizer("byte")));
  try {
    check_chat_tokens(*load_tokenizer("byte"), "byte");
    ADD_FAILURE() << "the byte tokenizer has no markers";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("the tokenizer 'byte' has no tokens <|im_start|>"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::text
