// --version and --group_by_modality_length: the rows of a run do not depend on how many ranks it has, nor on where it
// was stopped.

#include "resume_jobs.h"

namespace tessera::testing {
namespace {

class TrainConversations : public ResumeJobs {
 protected:
  TrainConversations() {
    std::string records;
    for (int i = 0; i < 60; ++i)
      records += concat(i == 0 ? "[" : ",\n", R"({"id": ")", i, R"(", "conversations": [{"from": "human", "value": ")",
                        std::string(static_cast<std::size_t>(1 + i % 7), 'q'),
                        R"("}, {"from": "gpt", "value": "it is )", i * i, "\"}]}");
    write_file_atomically(path("a.json"), records + "]\n");
  }

  void run(const std::string& output, int ranks, const Words& more, std::int64_t steps = 8) {
    train_on(ranks, config(output, steps,
                           Words{"--train_file", path("a.json"), "--config_overrides",
                                 "n_layer=1,n_embd=16,n_head=2,vocab_size=257,n_positions=256,bos_token_id=256,"
                                 "eos_token_id=256",
                                 "--max_seq_length", "256", "--validation_split_percentage", "0",
                                 "--deterministic_reduce", "--logical_shards", "4"} +
                               more));
  }
};

/// In fixed order equal rows are equal bits.
TEST_F(TrainConversations, EqualOnAnyNumberOfRanksAndGoesOnOnAnother) {
  const Words v1 = {"--version", "v1", "--group_by_modality_length"};
  run("one", 1, v1);
  run("two", 2, v1 + Words{"--save_steps", "5"});
  run("four", 4, v1 + Words{"--resume_from_checkpoint", path("two/checkpoint-5")});
  const std::string all = numbers("one");
  ASSERT_NE(all.find("step=8"), std::string::npos) << all;
  EXPECT_EQ(numbers("two"), all);
  EXPECT_EQ(numbers("four"), all.substr(all.find("step=6")));
}

TEST_F(TrainConversations, OrderAndTemplateAct) {
  run("one", 1, {"--version", "v1", "--group_by_modality_length"}, 2);
  run("order", 1, {"--version", "v1"}, 2);
  run("template", 1, {"--version", "mistral_instruct", "--group_by_modality_length"}, 2);
  EXPECT_NE(numbers("order"), numbers("one"));
  EXPECT_NE(numbers("template"), numbers("one"));
}

}  // namespace
}  // namespace tessera::testing
