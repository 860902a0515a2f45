// The templates of --version; parity with LLaVA's code is tested in tests/data/llava_test.cpp.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/text/conversation.h>

#include <tests/error_of.h>

namespace tessera::text {
namespace {

using tessera::testing::error_of;

std::string whole(const std::vector<Round>& rounds) {
  std::string all;
  for (const Round& round : rounds) all += round.asked + round.answered;
  return all;
}

TEST(ConversationTest, TemplatesAreWritten) {
  const std::vector<Turn> turns = {{false, "a"}, {true, "b"}, {false, "c"}, {true, "d"}};
  EXPECT_TRUE(whole(rounds_of(conversation_of("v1"), turns, "x"))
                  .ends_with("to the user's questions. USER: a ASSISTANT: b</s>USER: c ASSISTANT: d</s>"));
  EXPECT_TRUE(whole(rounds_of(conversation_of("llava_v1"), turns, "x")).starts_with("A chat between a curious human"));
  const std::string llama = whole(rounds_of(conversation_of("llava_llama_2"), turns, "x"));
  EXPECT_TRUE(llama.starts_with("[INST] <<SYS>>\nYou are a helpful language and vision assistant."));
  EXPECT_TRUE(llama.ends_with("\n<</SYS>>\n\na [/INST] b </s><s>[INST] c [/INST] d </s>"));
  EXPECT_EQ(whole(rounds_of(conversation_of("plain"), {{false, "x\n<image>"}, {true, "b"}}, "x")), "<image>b\n");
  EXPECT_EQ(rounds_of(conversation_of("v0"), turns, "x").front().asked,
            rounds_of(conversation_of("vicuna_v1"), turns, "x").front().asked)
      << "LLaVA's train.py keeps its template";
}

TEST(ConversationTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(error_of([] { rounds_of(conversation_of("v1"), {{false, "a"}, {false, "b"}}, "f:1:1"); }),
            "f:1:1: turn 2 is the user's again: human and gpt must alternate");
  EXPECT_TRUE(rounds_of(conversation_of("v1"), {{false, "a"}}, "x").empty());
  EXPECT_TRUE(rounds_of(conversation_of("v1"), {{false, "a"}, {true, "b</s>c"}}, "x").empty());
  EXPECT_NE(error_of([] { conversation_of("mpt"); }).find("not supported"), std::string::npos);
  EXPECT_NE(error_of([] { conversation_of("v9"); }).find("unknown template; supported are v1, "), std::string::npos);
}

}  // namespace
}  // namespace tessera::text
