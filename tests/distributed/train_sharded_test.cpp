// tessera train with every strategy: in fixed order, metrics and weights have the same bytes as under plain data
// parallelism; a checkpoint of any strategy and number of processes resumes with any other.

#include "harness.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/models/load.h>
#include <tessera/train/loop/sharding.h>
#include <tessera/train/loop/trainer.h>
#include <tessera/train/reporting/metrics.h>
#include <tests/error_of.h>

namespace tessera::testing {
namespace {

using Words = std::vector<std::string>;

constexpr const char* gpt2 =
    "n_layer=3,n_embd=32,n_head=2,vocab_size=257,n_positions=32,bos_token_id=256,eos_token_id=256,resid_pdrop=0.1,embd_"
    "pdrop=0.1,"
    "attn_pdrop=0.1";
constexpr const char* llama =
    "num_hidden_layers=2,hidden_size=32,num_attention_heads=2,num_key_value_heads=1,head_dim=16,intermediate_size=64,"
    "vocab_size=257,"
    "max_position_embeddings=32,bos_token_id=256,eos_token_id=256,tie_word_embeddings=false";

class TrainSharded : public ::testing::Test {
 protected:
  TrainSharded() {
    std::string text;
    for (int i = 0; i < 120; ++i) text += concat("rank ", i % 5, " holds tile ", (i * i) % 13, " of the mosaic.\n");
    write_file_atomically(path("text.txt"), text);
  }

  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }

  /// The words of the command line that all runs share.
  Words command(const std::string& output, const Words& more, bool fixed_order = true) const {
    Words words = {"--train_file",
                   path("text.txt"),
                   "--validation_file",
                   path("text.txt"),
                   "--tokenizer_name",
                   "byte",
                   "--block_size",
                   "32",
                   "--learning_rate",
                   "3e-3",
                   "--weight_decay",
                   "0.01",
                   "--max_grad_norm",
                   "0.5",
                   "--max_steps",
                   "4",
                   "--per_device_train_batch_size",
                   "2",
                   "--per_device_eval_batch_size",
                   "3",
                   "--output_dir",
                   path(output),
                   "--logging_steps",
                   "1",
                   "--eval_strategy",
                   "steps",
                   "--eval_steps",
                   "3",
                   "--threads_per_process",
                   "1"};
    if (fixed_order) words.insert(words.end(), {"--deterministic_reduce", "--logical_shards", "4"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  static RunConfig resolved(const Words& words) {
    return config::resolve_and_validate(words, [](const std::string&) { return std::nullopt; }).values;
  }

  /// Trains and returns the numbers of every log line; fails if a rank fails.
  std::string train(int processes, const Words& words) const {
    const RunConfig config = resolved(words);
    RankOptions options;
    options.timeout_s = 100;
    run_ranks(
        processes,
        [&](comm::World&) {
          // Hides progress; failures reach the parent through a pipe.
          ASSERT_NE(std::freopen("/dev/null", "w", stdout), nullptr);
          ASSERT_NE(std::freopen("/dev/null", "w", stderr), nullptr);
          EXPECT_EQ(train::train(config, Value::make_object()), ExitCode::done);
        },
        options);
    if (HasFailure()) return "";
    std::string record;
    const std::string metrics = path_join(config.output.output_dir, "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "eval_loss"})
        if (const Value* number = value.find(key)) record += concat(key, "=", dump_json(*number), " ");
      record += "\n";
    }
    return record;
  }

  std::string weights(const std::string& output) const {
    return read_file(path_join(path(output), "model.safetensors"));
  }

  TemporaryFolder folder_;
};

struct Case {
  const char* name;
  Words flags;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const std::vector<Case> strategies = {
    {"zero1", {"--zero_stage", "1"}},
    {"zero2", {"--zero_stage", "2", "--reduce_bucket_size", "4096"}},
    {"zero3", {"--zero_stage", "3", "--persistence_threshold", "40"}},
    {"full_shard", {"--fsdp", "full_shard auto_wrap", "--transformer_layer_cls_to_wrap", "GPT2Block"}},
    {"full_shard_offload", {"--fsdp", "full_shard auto_wrap offload"}},
    {"full_shard_checkpointing", {"--fsdp", "full_shard", "--gradient_checkpointing"}},
    {"no_wrap", {"--fsdp", "full_shard", "--auto_wrap_policy", "no_wrap"}},
    {"by_size", {"--fsdp", "full_shard size_based_auto_wrap", "--min_num_params", "5000"}},
    {"shard_grad_op",
     {"--fsdp_config", R"({"sharding_strategy": "SHARD_GRAD_OP", "backward_prefetch": "backward_post"})"}},
    {"optimizer_offload", {"--zero_stage", "1", "--cpu_offload", "optimizer"}}};

class Strategies : public TrainSharded, public ::testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(All, Strategies, ::testing::ValuesIn(strategies),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Strategies, HaveTheBytesOfPlainDataParallelism) {
  const Words model = {"--config_name", "gpt2-tiny", "--config_overrides", gpt2};
  const auto with = [&](Words words) {
    words.insert(words.end(), model.begin(), model.end());
    return words;
  };
  const std::string plain = train(2, command("plain", with({"--save_steps", "2", "--save_state_dict_type", "full"})));
  ASSERT_NE(plain.find("eval_loss="), std::string::npos);
  Words flags = GetParam().flags;
  flags.insert(flags.end(), {"--save_steps", "2", "--save_state_dict_type", "full"});
  EXPECT_EQ(train(2, command("sharded", with(flags))), plain);
  EXPECT_TRUE(weights("sharded") == weights("plain")) << "other bytes";
  EXPECT_TRUE(read_file(path("sharded/checkpoint-2/optimizer.safetensors")) ==
              read_file(path("plain/checkpoint-2/optimizer.safetensors")));
}

TEST_F(TrainSharded, HybridGroupsHaveTheBytesOfPlainDataParallelism) {
  const Words model = {"--config_name", "llama-tiny", "--config_overrides", llama};
  const auto with = [&](Words words) {
    words.insert(words.end(), model.begin(), model.end());
    return words;
  };
  const std::string plain = train(1, command("plain", with({})));
  ASSERT_NE(plain, "");
  EXPECT_EQ(train(4, command("hybrid", with({"--fsdp", "hybrid_shard", "--shard_group_size", "2"}))), plain);
  EXPECT_TRUE(weights("hybrid") == weights("plain")) << "other bytes";
}

// One process -> ZeRO-3 on two -> plain data parallelism on four: equals the uninterrupted run.
TEST_F(TrainSharded, ACheckpointResumesUnderAnyStrategy) {
  for (const char* optim : {"adamw", "adafactor", "rmsprop"}) {
    SCOPED_TRACE(optim);
    const std::string prefix = optim;
    const auto with = [&](const std::string& output, Words words) {
      words.insert(words.end(),
                   {"--config_name", "gpt2-tiny", "--config_overrides", gpt2, "--optim", optim, "--save_steps", "1"});
      if (prefix == "rmsprop")
        words.insert(words.end(), {"--optim_args", "momentum=0.9,centered=true"});  // enables
                                                                                    // all
                                                                                    // optimizer
                                                                                    // states
      return command(prefix + output, words);
    };
    train(2, with("through", {}));
    train(1, with("first", {}));
    Words second =
        with("second", {"--zero_stage", "3", "--resume_from_checkpoint", path(prefix + "first/checkpoint-1")});
    train(2, second);
    Words third = with("third", {"--resume_from_checkpoint", path(prefix + "second/checkpoint-3")});
    train(4, third);
    EXPECT_TRUE(weights(prefix + "second") == weights(prefix + "through")) << "ZeRO-3 went on differently";
    EXPECT_TRUE(weights(prefix + "third") == weights(prefix + "through"))
        << "plain data parallelism went on differently";
  }
}

TEST_F(TrainSharded, PretrainedWeightsAndAdaptersAreReadInParts) {
  train(1, command("base", {"--config_name", "gpt2-tiny", "--config_overrides", gpt2}));
  const std::string base = path("base");
  const auto run = [&](const std::string& output, const Words& flags) {
    Words words = command(output, {"--model_name_or_path", base});
    words.insert(words.end(), flags.begin(), flags.end());
    return train(2, words);
  };
  const std::string plain = run("plain", {});
  ASSERT_NE(plain, "");
  EXPECT_EQ(run("sharded", {"--fsdp", "full_shard"}), plain);
  EXPECT_TRUE(weights("sharded") == weights("plain"));
  const std::string lora = run("lora", {"--lora_r", "2", "--lora_merge"});
  EXPECT_EQ(run("lora_sharded", {"--lora_r", "2", "--lora_merge", "--fsdp", "full_shard"}), lora);
  for (const char* name : {"adapter_model.safetensors", "merged/model.safetensors"})
    EXPECT_TRUE(read_file(path_join(path("lora_sharded"), name)) == read_file(path_join(path("lora"), name))) << name;
}

TEST_F(TrainSharded, FastOrderStaysClose) {
  const Words model = {"--config_name", "gpt2-tiny", "--config_overrides", gpt2, "--gradient_accumulation_steps", "2"};
  const auto run = [&](const std::string& output, Words words) {
    words.insert(words.end(), model.begin(), model.end());
    train(2, command(output, words, /*fixed_order=*/false));
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    std::vector<double> losses;
    for (const std::string& line : split(read_file(metrics), '\n'))
      if (!line.empty())
        if (const Value value = parse_json(line, metrics); value.contains("loss"))
          losses.push_back(value.at("loss").as_real());
    return losses;
  };
  const std::vector<double> plain = run("plain", {});
  for (const auto& [name, flags] : std::vector<std::pair<std::string, Words>>{
           {"full", {"--fsdp", "full_shard"}}, {"zero2", {"--zero_stage", "2"}}, {"zero1", {"--zero_stage", "1"}}}) {
    const std::vector<double> losses = run(name, flags);
    ASSERT_EQ(losses.size(), plain.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], plain[i], 2e-6 * plain[i]) << name << " step " << i + 1;
  }
  const std::vector<double> narrow = run("bf16", {"--fsdp", "full_shard", "--bf16", "--param_dtype", "bf16"});
  for (std::size_t i = 0; i < narrow.size(); ++i)
    EXPECT_NEAR(narrow[i], plain[i], 0.05 * plain[i]) << "bf16 parameters, step " << i + 1;
}

// Each rank reads only its part of the weights: peak memory is its share plus one unit, and the overhead of file pages
// and tables, not the model.
TEST_F(TrainSharded, LoadingNeedsTheShareAndOneUnit) {
  const std::string folder = path("model");
  run_ranks(1, [&](comm::World&) {
    ModelConfig config;
    config.config_name = "gpt2-tiny";
    config.config_overrides = "n_layer=8,n_embd=512,n_head=8,vocab_size=257,n_positions=32";
    const auto model = models::load_model(config, 1);
    checkpoint::NamedTensors weights;
    for (const auto& item : model->named_parameters()) weights.emplace_back(item.key(), item.value().detach());
    make_folders(folder);
    checkpoint::write_hf_folder(folder, weights, model->hf_config(), nullptr);
  });
  run_ranks(2, [&](comm::World& world) {
    RunConfig config;
    config.model.model_name_or_path = folder;
    config.sharding.strategy = Strategy::full_shard;
    world.group().barrier().wait();
    std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
    const std::int64_t before = train::resident_bytes();
    std::string source;
    const auto model = models::load_model_deferred(config.model, 1, source);
    ASSERT_EQ(source, folder);
    const models::WeightSource weights(*model, source);
    auto options = train::sharding_options(config, *model, world.group());
    options.load = [&](const std::string& name, at::IntArrayRef, std::int64_t begin, at::Tensor piece) {
      return weights.read(name, begin, piece);
    };
    const Sharded sharded(*model, std::move(options));
    const std::int64_t peak = train::peak_resident_bytes() - before;
    std::int64_t all = 0, unit = 0;
    for (const ShardingUnit& u : sharded.units()) {
      all += 4 * u.numel;
      unit = std::max(unit, u.present_bytes);
    }
    EXPECT_LT(peak, all / 2 + unit + (24 << 20)) << "of " << all << " bytes";
    EXPECT_GT(all, all / 2 + unit + (24 << 20)) << "a model that is too small shows nothing";
  });
}

// Errors are reported once, before anything is written.
TEST_F(TrainSharded, WrongClassNamesAreRefusedBeforeAnyRankStarts) {
  const Words words = command("out", {"--config_name", "gpt2-tiny", "--config_overrides", gpt2, "--fsdp", "full_shard",
                                      "--transformer_layer_cls_to_wrap", "LlamaDecoderLayer"});
  EXPECT_NE(error_of([&] { resolved(words); }).find("LlamaDecoderLayer: a model of type \"gpt2\" has no such module"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
