#include "program.h"

namespace tessera::testing {
namespace {

constexpr const char* marked =
    "{% for m in messages %}{{ m.role[0] ~ ':' ~ m.content ~ '<|endoftext|>' }}{% endfor %}"
    "{{ 'a:' if add_generation_prompt else '' }}";

class ChatTest : public ToolTest {
 protected:
  ChatTest() {
    std::string lines;
    for (int i = 0; i < 40; ++i)
      for (const auto& [question, answer] : {std::pair("up?", "yes"), std::pair("down?", "no"), std::pair("so?", "hm")})
        lines += concat("{\"messages\": [{\"role\": \"user\", \"content\": \"", question,
                        "\"}, {\"role\": \"assistant\", \"content\": \"", answer, "\"}]}\n");
    write_file_atomically(at("chats.jsonl"), lines);
    write_file_atomically(at("marked.jinja"), marked);
  }
  Strings learning(const std::string& output, const Strings& more = {}) const {
    Strings all = training(output, batch(12, 1, 60) + more);
    *std::find(all.begin(), all.end(), at("text.txt")) = at("chats.jsonl");
    return all;
  }
  /// Runs chat with `said` on its standard input.
  launch::Captured chat(const std::string& said, const std::string& more = "") const {
    write_file_atomically(at("said.txt"), said);
    return launch::run_and_capture({"/bin/sh", "-c",
                                    concat("OMP_NUM_THREADS=1 exec ", program, " chat --greedy --model_name_or_path ",
                                           at("model"), " ", more, " < ", at("said.txt"))},
                                   {}, tessera::testing::patience(120));
  }
};

TEST_F(ChatTest, AModelLearnsAndTalksInItsTemplate) {
  const auto run = tessera(learning("model", {"--chat_template", at("marked.jinja")}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(read_file(at("model/chat_template.jinja")), marked);

  const auto talk = chat("up?\n/reset\n\ndown?\n/reset\nso?\n/undo\nso?\n/quit\nup?\n");
  ASSERT_EQ(talk.exit_code, 0) << talk.err;
  EXPECT_EQ(talk.out, "yes\nno\nhm\nhm\n") << "a line each, the template is the folder's";
  const auto once =
      tessera({"generate", "--greedy", "--model_name_or_path", at("model"), "--chat", "--prompt", "down?"});
  EXPECT_EQ(once.out, "no\n") << once.err;

  write_file_atomically(at("talk.json"), R"([{"role": "user", "content": "down?"}])");
  const Strings generate = {"generate", "--greedy", "--model_name_or_path", at("model")};
  const auto talked = tessera(generate + Strings{"--messages", at("talk.json")});
  EXPECT_EQ(talked.out, "no\n") << talked.err;
  const auto both = tessera(generate + Strings{"--messages", at("talk.json"), "--prompt", "up?"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_TRUE(contains(both.err, "remove one of them")) << both.err;
  const auto other = tessera(generate + Strings{"--messages", at("model/config.json")});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "config.json")) << other.err;

  const auto help = chat("/help\n/nonsense\n");
  EXPECT_TRUE(contains(help.out, "/undo")) << help.out;
  EXPECT_TRUE(contains(help.err, "unknown command: /nonsense")) << help.err;
  const auto forged = chat("up?\n", "--chat_template \"{{ raise_exception('not so') }}\"");
  EXPECT_EQ(forged.exit_code, 2);
  EXPECT_TRUE(contains(forged.err, "not so")) << forged.err;
}

TEST_F(ChatTest, WithoutATemplateTheReasonIsSaid) {
  const auto run = tessera(learning("model"));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(contains(run.err, "chats.jsonl:1:1: contains messages, but the tokenizer 'byte' comes with no chat temp"))
      << run.err;
  EXPECT_FALSE(path_exists(at("model")));
  const auto missing = tessera(learning("model", {"--chat_template", at("nowhere.jinja")}));
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_TRUE(contains(missing.err, "nowhere.jinja: neither an existing file")) << missing.err;
}

}  // namespace
}  // namespace tessera::testing
