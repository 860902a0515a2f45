#include "program.h"

#include <torch/version.h>

namespace tessera::testing {
namespace {

class GenerateTest : public ToolTest {
 protected:
  void train(int steps) const {
    const auto run = tessera(training("model", batch(12, 1, steps)));
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  Strings generate(const Strings& more) const {
    return Strings{"generate", "--model_name_or_path", at("model")} + more;
  }
};

TEST_F(GenerateTest, ContinuesThePrompt) {
  train(200);
  const auto greedy = tessera(generate({"--prompt", "the 3 small", "--greedy", "--max_new_tokens", "20"}));
  ASSERT_EQ(greedy.exit_code, 0) << greedy.err;
  EXPECT_TRUE(greedy.out.starts_with("the 3 small")) << greedy.out;
  EXPECT_TRUE(contains(greedy.out, " stones")) << "learnt from the text: " << greedy.out;
  EXPECT_EQ(tessera(generate({"--prompt", "the 3 small", "--greedy", "--max_new_tokens", "20"})).out, greedy.out);

  const Strings sampled = {"--prompt", "row",     "--temperature", "1.5",    "--top_k",
                           "50",       "--top_p", "0.99",          "--seed", "7"};
  const auto first = tessera(generate(sampled)), again = tessera(generate(sampled));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out, again.out);
  EXPECT_TRUE(contains(first.err, "64 positions")) << "100 new tokens do not fit, which is said: " << first.err;
}

TEST_F(GenerateTest, RefusesBadInput) {
  train(1);
  const auto refused = [&](const Strings& arguments, const std::string& part) {
    const auto run = tessera(arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_TRUE(contains(run.err, part)) << run.err;
    EXPECT_EQ(run.out, "");
  };
  refused(generate({"--prompt", ""}), "prompt is empty");
  refused(generate({"--prompt", "a", "--top_p", "2"}), "top_p is 2");
  refused(generate({"--prompt", "a", "--temprature", "2"}), "did you mean --temperature");
  refused(generate({"--prompt", "a", "--max_new_tokens", "many"}), "expected an integer");
  refused(generate({}), "--prompt is missing");
  refused(generate({"--prompt", "a", "--system", "Be brief."}), "--system needs --chat");
  refused(generate({"--prompt", "a", "--chat"}), "<|im_start|>");
  refused(generate({"--prompt", "a", "--chat_template", "t.jinja"}), "--chat_template needs --chat");
  refused({"generate", "--model_name_or_path", at("nowhere"), "--prompt", "a"}, at("nowhere"));
}

TEST(Tool, EnvNamesVersionsAndBackends) {
  const auto run = tessera({"env"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* part : {"LibTorch " TORCH_VERSION, "Processor:", "Threads per process: 1", "gloo"})
    EXPECT_TRUE(contains(run.out, part)) << part << ": " << run.out;
}

TEST(Tool, SelfTestRunsRealProcesses) {
  const auto run = tessera({"test", "--num_processes", "3"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "3 processes, backend shm")) << run.out;
  EXPECT_EQ(tessera({"test", "--num_process", "3"}).exit_code, 2);
}

}  // namespace
}  // namespace tessera::testing
