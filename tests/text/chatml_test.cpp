// Conversations as ChatML: the text, its scored parts, and the tokenizers that support it.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/text/chat_template.h>
#include <tests/paths.h>

namespace tessera::text {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/text");

const tessera::Value two_turns = parse_json(R"([{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Bye."}, {"role": "assistant", "content": ""}])",
                                            "two turns");

std::string joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

TEST(ChatMl, IsChatMl) {
  EXPECT_EQ(joined(ChatTemplate::chatml().scored_pieces(two_turns)),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi?<|im_end|>\n"
            "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye.<|im_end|>\n"
            "<|im_start|>assistant\n<|im_end|>\n");
}

TEST(ChatMl, ScoresWhatTheAssistantSaysAndItsEnd) {
  std::vector<std::string> scored;
  bool previous = true;
  for (const Piece& piece : ChatTemplate::chatml().scored_pieces(two_turns)) {
    if (piece.scored) scored.push_back(piece.text);
    EXPECT_NE(piece.scored, previous);
    previous = piece.scored;
  }
  EXPECT_EQ(scored, (std::vector<std::string>{"Hello!<|im_end|>", "<|im_end|>"}));
}

TEST(ChatMl, PiecesHaveTheTokensOfTheWhole) {
  for (const char* family : {"smollm2", "qwen2", "llama3"}) {
    const auto tokenizer = load_tokenizer(concat(fixtures, "/family_", family, ".json"));
    const auto pieces = ChatTemplate::chatml().scored_pieces(two_turns);
    std::vector<std::int32_t> ids;
    for (const Piece& piece : pieces) {
      const auto more = tokenizer->encode(piece.text);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    EXPECT_EQ(ids, tokenizer->encode(joined(pieces))) << family;
  }
}

TEST(ChatMl, NeedsATokenizerThatKnowsTheMarkers) {
  EXPECT_TRUE(has_chat_tokens(*load_tokenizer(fixtures + "/family_smollm2.json")));
  EXPECT_FALSE(has_chat_tokens(*load_tokenizer(fixtures)));
  EXPECT_FALSE(has_chat_tokens(*load_tokenizer("byte")));
}

}  // namespace
}  // namespace tessera::text
