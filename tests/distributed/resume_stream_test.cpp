// --streaming, --fim_data and --version: the rows of a run depend neither on its number of ranks nor on where it was
// interrupted.

#include "resume_jobs.h"

#include <tessera/text/tokenizer.h>

namespace tessera::testing {
namespace {

class ResumeStream : public ResumeJobs {
 protected:
  void run(const std::string& output, int ranks, const Words& more) {
    train_on(ranks, config(output, 8,
                           Words{"--deterministic_reduce", "--logical_shards", "4", "--streaming", "--streaming_buffer",
                                 "7", "--train_file", concat("0.7 ", path("text.txt"), " 0.3 ", path("other.txt"))} +
                               more));
  }
};

/// In fixed order, equal rows give equal bits.
TEST_F(ResumeStream, EqualOnAnyNumberOfRanksAndGoesOnOnAnother) {
  std::string text;
  for (int i = 0; i < 90; ++i) text += concat(i, " bottles of beer\n");
  write_file_atomically(path("other.txt"), text);
  run("one", 1, {});
  run("two", 2, {"--save_steps", "5"});
  run("four", 4, {"--resume_from_checkpoint", path("two/checkpoint-5")});
  run("again", 1, {"--resume_from_checkpoint", path("two/checkpoint-5")});
  const std::string all = numbers("one");
  ASSERT_NE(all.find("step=8"), std::string::npos) << all;
  EXPECT_EQ(numbers("two"), all);
  EXPECT_EQ(numbers("four"), all.substr(all.find("step=6")));
  EXPECT_EQ(numbers("again"), all.substr(all.find("step=6")));
}

/// A stream has a different order from files, so a run that began with one cannot be resumed with the other.
TEST_F(ResumeStream, IsNotResumedWithoutStreaming) {
  write_file_atomically(path("other.txt"), read_file(path("text.txt")));
  run("one", 1, {"--save_steps", "5"});
  const RunConfig job = config("two", 8, {"--resume_from_checkpoint", path("one/checkpoint-5")});
  run_ranks(
      1,
      [&](comm::World&) {
        be_quiet();
        try {
          train::train(job, Value::make_object());
          ADD_FAILURE() << "went on";
        } catch (const InputError& error) {
          EXPECT_NE(std::string(error.what()).find("was made with --streaming"), std::string::npos) << error.what();
        }
      },
      time_limit(60));
}

/// Texts rearranged for filling in the middle.
class TrainFillInMiddle : public ResumeJobs {
 protected:
  /// A byte tokenizer with the tokens of fill-in-the-middle.
  TrainFillInMiddle() {
    make_folders(path("tokenizer"));
    text::load_tokenizer("byte")->save(path("tokenizer"));
    const std::string file = path("tokenizer/tokenizer.json");
    Value json = parse_json(read_file(file), file);
    std::vector<Value> added = json.at("added_tokens").items();
    std::int64_t id = 257;
    for (const char* token : {"<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"})
      added.push_back(Value::make_object({{"id", Value::of(id++)},
                                          {"content", Value::of(token)},
                                          {"single_word", Value::of(false)},
                                          {"lstrip", Value::of(false)},
                                          {"rstrip", Value::of(false)},
                                          {"normalized", Value::of(false)},
                                          {"special", Value::of(true)}}));
    json.set("added_tokens", Value::make_array(std::move(added)));
    write_file_atomically(file, dump_json(json));
  }

  void run(const std::string& output, int ranks, const Words& more) {
    train_on(
        ranks,
        config(output, 8,
               Words{"--tokenizer_name", path("tokenizer"), "--config_overrides",
                     "n_layer=1,n_embd=16,n_head=2,vocab_size=261,n_positions=16,bos_token_id=256,eos_token_id=256",
                     "--deterministic_reduce", "--logical_shards", "4"} +
                   more));
  }

  /// Compares one rank, two, and four that resume from a checkpoint of two; the rows must differ from those without
  /// rearrangement.
  void equal_everywhere(const Words& stream) {
    const Words fim = stream + Words{"--fim_data", "--validation_split_percentage", "0"};
    run("one", 1, fim);
    run("two", 2, fim + Words{"--save_steps", "5"});
    run("four", 4, fim + Words{"--resume_from_checkpoint", path("two/checkpoint-5")});
    const std::string all = numbers("one");
    ASSERT_NE(all.find("step=8"), std::string::npos) << all;
    EXPECT_EQ(numbers("two"), all);
    EXPECT_EQ(numbers("four"), all.substr(all.find("step=6")));
    run("plain", 1, stream + Words{"--validation_split_percentage", "0"});
    EXPECT_NE(numbers("plain"), all);
  }
};

/// In fixed order, equal rows give equal bits.
TEST_F(TrainFillInMiddle, EqualOnAnyNumberOfRanksAndGoesOnOnAnother) { equal_everywhere({}); }
TEST_F(TrainFillInMiddle, EqualInAStream) { equal_everywhere({"--streaming", "--streaming_buffer", "7"}); }

/// Records in LLaVA's format, written out by its templates.
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

/// In fixed order, equal rows give equal bits.
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
  run("one", 1, {"--version", "v1", "--group_by_modality_length"}, 4);
  run("order", 1, {"--version", "v1"}, 4);
  run("template", 1, {"--version", "mistral_instruct", "--group_by_modality_length"}, 4);
  EXPECT_NE(numbers("order"), numbers("one"));
  EXPECT_NE(numbers("template"), numbers("one"));
}

}  // namespace
}  // namespace tessera::testing
