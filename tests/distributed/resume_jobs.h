#pragma once
/// \file
/// Small training runs that are saved and resumed: their layouts (number of ranks, what is sharded), flags and results.

#include "harness.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/train/loop/trainer.h>

namespace tessera::testing {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// TESSERA_FULL=1: all combinations instead of covering subsets.
inline bool whole_product() {
  const char* value = std::getenv("TESSERA_FULL");
  return value != nullptr && std::string(value) == "1";
}

/// The time limit of a run that takes a few seconds on an idle machine; the full set of combinations runs under more
/// load.
inline RankOptions time_limit(double seconds) {
  RankOptions options;
  options.timeout_s = whole_product() ? 10 * seconds : seconds;
  return options;
}

/// The layout of a run.
struct Layout {
  std::string name;  ///< "full_shard_3"
  int ranks;
  Words flags;
};
inline void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

/// {1, 2, 3, 4 ranks} x {ddp, zero1, zero2, full_shard, everything offloaded}, and on four ranks hybrid.
inline std::vector<Layout> all_layouts() {
  const std::vector<std::pair<const char*, Words>> strategies = {
      {"ddp", {}},
      {"zero1", {"--zero_stage", "1"}},
      {"zero2", {"--zero_stage", "2", "--reduce_bucket_size", "4096"}},
      {"full_shard", {"--fsdp", "full_shard auto_wrap"}},
      {"offload", {"--fsdp", "full_shard auto_wrap", "--cpu_offload", "all"}}};
  std::vector<Layout> all;
  for (const int ranks : {1, 2, 3, 4})
    for (const auto& [name, flags] : strategies) all.push_back({concat(name, "_", ranks), ranks, flags});
  all.push_back({"hybrid_4", 4, {"--fsdp", "hybrid_shard auto_wrap", "--shard_group_size", "2"}});
  return all;
}

inline Layout layout_named(const std::string& name) {
  for (const Layout& layout : all_layouts())
    if (layout.name == name) return layout;
  throw Error(concat("no layout ", name));
}

/// Suppresses progress output; failures reach the parent through a pipe.
inline void be_quiet() {
  ASSERT_NE(std::freopen("/dev/null", "w", stdout), nullptr);
  ASSERT_NE(std::freopen("/dev/null", "w", stderr), nullptr);
}

/// Runs in a temporary folder.
class ResumeJobs : public ::testing::Test {
 protected:
  ResumeJobs() {
    {
      const parallel::DeferredScope scope;
    }  // registers operators once here instead of in every rank
    std::string text;
    for (int i = 0; i < 160; ++i) text += concat("rank ", i % 5, " holds tile ", (i * i) % 13, " of the mosaic.\n");
    write_file_atomically(path("text.txt"), text);
  }

  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }

  /// The common configuration: a model whose tensors do not divide evenly, with dropout, so that random numbers must
  /// also be resumed.
  RunConfig config(const std::string& output, std::int64_t steps, const Words& more) const {
    static const Words from_scratch = {
        "--config_name", "gpt2-tiny", "--config_overrides",
        "n_layer=2,n_embd=20,n_head=2,vocab_size=257,n_positions=16,bos_token_id=256,eos_token_id=256,resid_pdrop=0.1,"
        "embd_pdrop=0.1,attn_pdrop=0.1"};
    const bool named = !more.empty() && more[0] == "--model_name_or_path";
    const Words words = (named ? Words{} : from_scratch) +
                        Words{"--tokenizer_name",
                              "byte",
                              "--train_file",
                              path("text.txt"),
                              "--block_size",
                              "16",
                              "--learning_rate",
                              "3e-3",
                              "--warmup_steps",
                              "3",
                              "--weight_decay",
                              "0.01",
                              "--max_grad_norm",
                              "0.5",
                              "--per_device_train_batch_size",
                              "1",
                              "--logging_steps",
                              "1",
                              "--report_to",
                              "none",
                              "--threads_per_process",
                              "1",
                              "--max_steps",
                              concat(steps),
                              "--output_dir",
                              path(output)} +
                        more;
    return config::resolve_and_validate(words, [](const std::string&) { return std::nullopt; }).values;
  }

  /// Trains to the end on that many ranks.
  static void train_on(int ranks, const RunConfig& config) {
    run_ranks(
        ranks,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(config, Value::make_object()), ExitCode::done) << config.output.output_dir;
        },
        time_limit(60));
  }

  /// The numbers of every logged step, as written in the file.
  std::string numbers(const std::string& output) const {
    std::string record;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      if (value.find("event") != nullptr) continue;
      for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "epoch"})
        if (const Value* number = value.find(key)) record += concat(key, "=", dump_json(*number), " ");
      record += "\n";
    }
    return record;
  }

  TemporaryFolder folder_;
};

}  // namespace tessera::testing
