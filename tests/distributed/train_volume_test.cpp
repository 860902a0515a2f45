// The communication table of `tessera train` (metrics.jsonl, report.html, the last lines of a run) by mesh axis: the
// bytes a layer sends per rank equal the published formulas (docs/parallelism.md, docs/sharding.md).

#include "resume_jobs.h"

#include <map>

namespace tessera::testing {
namespace {

constexpr double hidden = 64, key_width = 32, inner = 96, length = 64, rows = 4, element = 4, steps = 3;

/// Elements of a block's matrices; its two norms have `hidden` each.
constexpr double matrices = 2 * hidden * hidden + 2 * hidden * key_width + 3 * hidden * inner;

class TrainVolume : public ResumeJobs {
 protected:
  /// Bytes sent by rank 0, by axis, without the initial broadcasts.
  std::map<std::string, double> sent(int ranks, int layers, const Words& mesh) const {
    const std::string output = concat("out", layers);
    const RunConfig run = config(output, static_cast<std::int64_t>(steps),
                                 Words{"--config_name", "llama-tiny", "--config_overrides",
                                       concat("num_hidden_layers=", layers,
                                              ",hidden_size=64,num_attention_heads=4,num_key_value_heads=2,head_dim=16,"
                                              "intermediate_size=96,vocab_size=257,max_position_embeddings=64"),
                                       "--block_size", "64", "--per_device_train_batch_size", "4", "--save_strategy",
                                       "no", "--overwrite_output_dir"} +
                                     mesh);
    run_ranks(
        ranks,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(run, Value::make_object()), ExitCode::done);
        },
        time_limit(60));
    std::map<std::string, double> bytes;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    std::string last;
    for (const std::string& line : split(read_file(metrics), '\n'))
      if (!line.empty()) last = line;
    const Value end = parse_json(last, metrics);
    for (const Value& row : end.at("communication").items())
      if (row.at("operation").as_string() != "broadcast")
        bytes[row.at("axis").as_string()] += row.at("moved_bytes").as_real();
    return bytes;
  }

  /// One more layer costs a step `formula` bytes on these axes, and nothing on the others.
  void expect_layer(const char* what, int ranks, const Words& mesh,
                    const std::map<std::string, double>& formula) const {
    const auto two = sent(ranks, 2, mesh), three = sent(ranks, 3, mesh);
    if (HasFailure()) return;
    for (const auto& [axis, bytes] : formula) {
      ASSERT_TRUE(three.contains(axis)) << what << ": no row of axis " << axis;
      const double layer = (three.at(axis) - two.at(axis)) / steps;
      EXPECT_NEAR(layer / bytes, 1, 0.01) << what << ", axis " << axis << ": " << layer << " bytes, formula " << bytes;
      std::printf("  %-16s %-12s %8.0f bytes per layer, formula %8.0f\n", what, axis.c_str(), layer, bytes);
    }
    for (const auto& [axis, bytes] : three) {
      if (formula.contains(axis)) continue;
      EXPECT_LE(bytes - two.at(axis), 200 * steps) << what << ": axis " << axis << " has no business with layers";
    }
  }
};

// Megatron-LM (Shoeybi et al. 2019; Korthikanti et al. 2022): four all-reduces of activations per layer, or as many
// pairs of all-gather and reduce-scatter plus the sums of the norms' gradients.
TEST_F(TrainVolume, tensor_and_sequence_parallel) {
  const double activations = rows * length * hidden * element, share = 1.0 / 2;
  expect_layer("tp2", 2, {"--tp_size", "2"}, {{"tp", 4 * 2 * share * activations}});
  expect_layer("tp2, sp", 2, {"--tp_size", "2", "--sequence_parallel"},
               {{"tp", 4 * 2 * share * activations + 2 * share * 2 * hidden * element}});
}

// Keys and values go around the ring once in forward; they and their gradients go around once in backward.
TEST_F(TrainVolume, ring) {
  const double keys_and_values = 2 * rows * (length / 2) * key_width * element;
  const double gradients = 2 * (1.0 / 2) * (matrices + 2 * hidden) * element;
  expect_layer("cp2", 2, {"--cp_size", "2"}, {{"cp", 3 * keys_and_values + gradients}});
}

// Parameters are gathered twice and gradients scattered once; with tp, half of the matrices.
TEST_F(TrainVolume, full_shard_alone_and_of_tensor_parallel_parts) {
  const Words full_shard = {"--fsdp", "full_shard auto_wrap"};
  expect_layer("fsdp2", 2, full_shard, {{"dp_shard", 3 * (1.0 / 2) * (matrices + 2 * hidden) * element}});
  expect_layer("fsdp2 x tp2", 4, full_shard + Words{"--tp_size", "2"},
               {{"dp_shard", 3 * (1.0 / 2) * (matrices / 2 + 2 * hidden) * element},
                {"tp", 4 * 2 * (1.0 / 2) * rows * length * hidden * element}});
}

}  // namespace
}  // namespace tessera::testing
