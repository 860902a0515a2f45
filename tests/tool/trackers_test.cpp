#include "program.h"

/// A run's output for other tools: metrics.csv (--report_to), and the model card of the finished model.

namespace tessera::testing {
namespace {

using TrackersTest = ToolTest;

Strings lines_of(const std::string& path) { return split(trim(read_file(path)), '\n'); }

TEST_F(TrackersTest, TheTableGoesOnWithTheRunThatIsResumed) {
  const auto run = tessera(training("out", Strings{"--report_to", "csv", "--eval_strategy", "steps", "--eval_steps",
                                                   "2", "--num_processes", "2", "--run_name", "tiny"} +
                                               batch(3, 1, 4)));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_FALSE(path_exists(at("out/runs"))) << "no TensorBoard";
  EXPECT_EQ(lines_of(at("out/metrics.csv")).size(), 8u) << "header, four logs, two evaluations, the end";

  const auto more = tessera(training("out", Strings{"--report_to", "csv", "--eval_strategy", "steps", "--eval_steps",
                                                    "2", "--run_name", "tiny", "--resume_from_checkpoint", "last"} +
                                                batch(6, 1, 6)));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(lines_of(at("out/metrics.csv")).size(), 1u + 6 + 3 + 2) << "the first end was at step 4 and stays";
}

TEST_F(TrackersTest, TheCardOfTheModel) {
  const auto run = tessera(training("out", batch(12, 1, 2) + Strings{"--eval_strategy", "steps", "--eval_steps", "2"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string card = read_file(at("out/README.md"));
  for (const char* part :
       {"---\nlibrary_name: transformers\npipeline_tag: text-generation\nmetrics:\n- perplexity\n", "# out\n",
        "trained from scratch", "learning_rate: 0.01\n", "text.txt", "1 process x 1 thread", "| 2 | "})
    EXPECT_TRUE(contains(card, part)) << part << " in " << card;
  EXPECT_FALSE(contains(card, "report_to:")) << "defaults are not listed: " << card;

  // Further training carries over the base model's card data, and does not touch a card that a person has edited.
  write_file_atomically(at("out/README.md"), "---\nlicense: mit\nlanguage: de\n---\n# Mine\n");
  const Strings further = {"train",
                           "--model_name_or_path",
                           at("out"),
                           "--train_file",
                           at("text.txt"),
                           "--block_size",
                           "32",
                           "--lora_r",
                           "2",
                           "--lora_merge",
                           "--max_steps",
                           "1",
                           "--output_dir",
                           at("lora"),
                           "--report_to",
                           "none"};
  const auto adapters = tessera(further);
  ASSERT_EQ(adapters.exit_code, 0) << adapters.err;
  const std::string lora = read_file(at("lora/README.md"));
  EXPECT_TRUE(lora.starts_with("---\nlibrary_name: peft\nlicense: mit\nlanguage: de\n")) << lora;
  EXPECT_TRUE(read_file(at("lora/merged/README.md")).starts_with("---\nlibrary_name: transformers\n"));
  write_file_atomically(at("lora/README.md"), "# Mine\n");
  const auto again = tessera(further + Strings{"--overwrite_output_dir"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(contains(again.err, "was not written by a run, so it is kept")) << again.err;
  EXPECT_EQ(read_file(at("lora/README.md")), "# Mine\n");
  const auto none = tessera(training("none", batch(12, 1, 1) + Strings{"--model_card", "false"}));
  ASSERT_EQ(none.exit_code, 0) << none.err;
  EXPECT_FALSE(path_exists(at("none/README.md")));
}

}  // namespace
}  // namespace tessera::testing
