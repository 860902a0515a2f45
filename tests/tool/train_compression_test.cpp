// --compression_training in whole runs: it takes effect at the configured step, to the configured number of bits,
// identically on any number of processes; a resumed run equals the uninterrupted one.

#include "program.h"

#include <tests/paths.h>

#include <cmath>
#include <cstring>
#include <set>

namespace tessera::testing {
namespace {

/// The weight_quantization section for these modules.
std::string weights(const std::string& shared, int start, int target, int period, const std::string& modules) {
  return concat(R"("weight_quantization": {"shared_parameters": {"enabled": true, )", shared,
                R"(}, "different_groups": {"wq1": {"params": {"start_bits": )", start, R"(, "target_bits": )", target,
                R"(, "quantization_period": )", period, R"(}, "modules": [)", modules, "]}}}");
}
std::string inputs(int offset, int bits, const std::string& modules) {
  return concat(R"("activation_quantization": {"shared_parameters": {"enabled": true, "schedule_offset": )", offset,
                R"(, "quantization_type": "asymmetric"}, "different_groups": {"aq1": {"params": {"bits": )", bits,
                R"(}, "modules": [)", modules, "]}}}");
}

const std::string gpt2_maps = R"("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")",
                  in_forward = R"("quantize_weight_in_forward": true, "quantize_groups": 4)",
                  fixed_order[] = {"--deterministic_reduce", "--logical_shards", "4"};

class TrainCompressionTest : public ToolTest {
 protected:
  void run(const std::string& output, const Strings& more) const {
    const auto done = tessera(training(output, more));
    ASSERT_EQ(done.exit_code, 0) << done.err;
  }
  static Strings compressed(const std::string& section) {
    return {"--compression_training", concat("{", section, "}")};
  }
  std::string model(const std::string& output) const { return read_file(at(output + "/model.safetensors")); }
  /// The first step with different losses; 0: none.
  std::int64_t parted(const std::string& a, const std::string& b) const {
    const auto one = curve(a), other = curve(b);
    EXPECT_EQ(one.size(), other.size());
    for (const auto& [step, loss] : one)
      if (other.at(step) != loss) return step;
    return 0;
  }
};

TEST_F(TrainCompressionTest, ActsFromTheStepOnAndAsTheBitsSay) {
  const Strings steps = batch(12, 1, 5);
  run("plain", steps);
  const auto late = [](int bits) {
    return compressed(weights(in_forward + R"(, "schedule_offset": 2)", bits, bits, 0, gpt2_maps));
  };
  run("eight", steps + late(8));
  run("four", steps + late(4));
  run("two", steps + late(2));
  run("one", steps + late(1));
  for (const std::string name : {"eight", "four", "two", "one"}) EXPECT_EQ(parted("plain", name), 3) << name;
  // The fewer the bits, the larger the difference from full weights.
  const auto off = [&](const std::string& name) { return std::abs(curve(name).at(3) - curve("plain").at(3)); };
  EXPECT_GT(off("four"), 2 * off("eight"));
  EXPECT_GT(off("two"), 2 * off("four"));
  EXPECT_GT(off("one"), off("four"));
  EXPECT_LT(off("eight"), 1e-2);

  run("inputs", steps + compressed(inputs(3, 4, gpt2_maps)));
  EXPECT_EQ(parted("plain", "inputs"), 4);
  run("finer", steps + compressed(inputs(3, 8, gpt2_maps)));
  EXPECT_EQ(parted("plain", "finer"), 4);
  EXPECT_LT(std::abs(curve("finer").at(4) - curve("plain").at(4)),
            0.5 * std::abs(curve("inputs").at(4) - curve("plain").at(4)));
  run("table", steps + compressed(weights(in_forward, 2, 2, 0, R"("wte")")));
  EXPECT_EQ(parted("plain", "table"), 1);

  // Falling bits: with equal start and target, the result equals that with a constant number of bits.
  const auto moq = [](int start, int target, int period) {
    return compressed(weights(R"("schedule_offset": 2, "quantize_groups": 4)", start, target, period, gpt2_maps));
  };
  run("stays", steps + moq(8, 8, 0));
  run("falls", steps + moq(8, 4, 2));
  EXPECT_EQ(parted("eight", "stays"), 0) << "rounded in forward or before it, it is one thing";
  EXPECT_EQ(parted("stays", "falls"), 4) << "step 3 is the first rounded one, a bit falls in the second";
}

TEST_F(TrainCompressionTest, TellsWhatIsRoundedAndSavesFullWeights) {
  const auto done = tessera(training("out", batch(12, 1, 3) + compressed(weights(in_forward, 1, 1, 0, gpt2_maps))));
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_TRUE(contains(done.err, "rounded in training: weights of 8 modules to 1 bits from step 1 on")) << done.err;
  EXPECT_LT(curve("out").at(3), curve("out").at(1)) << "it learns";
  // With one bit and four groups, a weight would have eight distinct numbers.
  const std::string file = model("out");
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  const Value index = parse_json(file.substr(8, header), "model.safetensors");
  const Value& tensor = index.at("transformer.h.0.mlp.c_fc.weight");
  std::set<std::uint32_t> numbers;
  for (std::int64_t i = tensor.at("data_offsets").items()[0].as_int();
       i < tensor.at("data_offsets").items()[1].as_int(); i += 4) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, file.data() + 8 + header + i, sizeof bits);
    numbers.insert(bits);
  }
  EXPECT_GT(numbers.size(), 1000u);
}

TEST_F(TrainCompressionTest, AnyNumberOfProcessesGivesTheSame) {
  // Noise, falling bits and token ranges do not depend on the layout of the run.
  const Strings asked = compressed(weights(R"("rounding": "stochastic", "quantize_groups": 4, "schedule_offset": 1)", 8,
                                           4, 1, gpt2_maps) +
                                   ", " + inputs(2, 8, gpt2_maps)) +
                        Strings(std::begin(fixed_order), std::end(fixed_order));
  run("alone", asked + batch(3, 4, 5));
  const Strings two = asked + Strings{"--num_processes", "2"} + batch(3, 2, 5);
  for (const std::string strategy : {"ddp", "zero1", "zero2", "full_shard"}) {
    run(strategy, two + Strings{"--strategy", strategy});
    EXPECT_EQ(curve(strategy), curve("alone")) << strategy;
    EXPECT_TRUE(model(strategy) == model("alone")) << strategy << ": bit by bit";
  }
  run("checkpointed", two + Strings{"--strategy", "full_shard", "--gradient_checkpointing"});
  EXPECT_TRUE(model("checkpointed") == model("alone")) << "bit by bit";
  run("pipeline", asked + batch(3, 4, 5) + Strings{"--num_processes", "2", "--pp_size", "2"});
  for (const char* member : {"loss", "grad_norm"})
    EXPECT_EQ(curve("pipeline", member), curve("alone", member)) << "its model is in two files";
}

TEST_F(TrainCompressionTest, AResumedRunIsTheUninterruptedOne) {
  const Strings asked = compressed(weights(R"("rounding": "stochastic", "schedule_offset": 1,
      "fp16_mixed_quantize": {"enabled": true, "quantize_change_ratio": 0.1})",
                                           8, 3, 1, gpt2_maps)) +
                        Strings{"--num_processes", "2", "--strategy", "full_shard"} + batch(3, 2, 6);
  run("whole", asked + Strings{"--save_steps", "3"});
  run("rest", asked + Strings{"--resume_from_checkpoint", at("whole/checkpoint-3")});
  EXPECT_EQ(curve("rest").at(4), curve("whole").at(4));
  EXPECT_TRUE(model("rest") == model("whole")) << "bit by bit";
}

TEST_F(TrainCompressionTest, RunningRangesAreThoseOfAllProcesses) {
  const auto with = [&](int offset) {
    std::string section = inputs(offset, 4, gpt2_maps);
    const std::string type = "\"quantization_type\": \"asymmetric\"";
    section.replace(section.find(type), type.size(), type + ", \"range_calibration\": \"static\"");
    return compressed(section) + Strings(std::begin(fixed_order), std::end(fixed_order));
  };
  run("plain", batch(3, 4, 6) + Strings(std::begin(fixed_order), std::end(fixed_order)));
  run("alone", with(2) + batch(3, 4, 6) + Strings{"--save_steps", "4"});
  EXPECT_EQ(parted("plain", "alone"), 3);
  run("first", with(0) + batch(3, 4, 6));
  EXPECT_EQ(parted("plain", "first"), 2) << "the first step has no range yet";
  run("tokens",
      compressed(inputs(2, 4, gpt2_maps)) + Strings(std::begin(fixed_order), std::end(fixed_order)) + batch(3, 4, 6));
  EXPECT_EQ(parted("tokens", "alone"), 3) << "something else than ranges of tokens";
  const Strings two = with(2) + Strings{"--num_processes", "2"} + batch(3, 2, 6);
  run("ddp", two);
  run("full_shard", two + Strings{"--strategy", "full_shard", "--gradient_checkpointing"});
  run("resumed", two + Strings{"--resume_from_checkpoint", at("alone/checkpoint-4")});
  run("pipeline", with(2) + batch(3, 4, 6) + Strings{"--num_processes", "2", "--pp_size", "2"});
  EXPECT_EQ(curve("pipeline", "grad_norm"), curve("alone", "grad_norm"));
  for (const char* name : {"ddp", "full_shard", "resumed"})
    EXPECT_TRUE(model(name) == model("alone")) << name << ": bit by bit";
}

// DeepSpeedExamples' W1A8 in a DeepSpeed file.
TEST_F(TrainCompressionTest, BertWithADeepspeedFile) {
  std::string text;
  for (int i = 0; i < 120; ++i)
    text += concat("and god said let the earth bring forth grass number ", i % 9, " and it was so.\n");
  write_file_atomically(at("verses.txt"), text);
  const std::string names = R"("attention.self", "intermediate", "output.dense")";
  write_file_atomically(
      at("ds.json"), concat(R"({"train_batch_size": 8, "gradient_clipping": 1.0, "compression_training": {)",
                            weights(R"("quantize_weight_in_forward": true)", 1, 1, 0, R"("word_embeddings", )" + names),
                            ", ", inputs(0, 8, names), "}}"));
  const auto bert = [&](const std::string& output, const Strings& more) {
    const auto done = tessera(Strings{"train", "--model_name_or_path", source_path("tests/fixtures/bert_tiny"),
                                      "--train_file", at("verses.txt"), "--block_size", "32", "--learning_rate", "1e-2",
                                      "--lr_scheduler_type", "constant", "--logging_steps", "1", "--max_steps", "12",
                                      "--mlm_probability", "0.3", "--output_dir", at(output)} +
                              more);
    ASSERT_EQ(done.exit_code, 0) << done.err;
  };
  bert("plain", {"--per_device_train_batch_size", "8"});
  bert("alone", {"--deepspeed", at("ds.json")});
  EXPECT_GT(std::abs(curve("alone").at(1) - curve("plain").at(1)), 1e-3);
  EXPECT_LT(curve("alone").at(12), 0.8 * curve("alone").at(1)) << "it learns";
  for (const std::string stage : {"0", "3"}) {
    bert("stage" + stage, {"--deepspeed", at("ds.json"), "--num_processes", "2", "--zero_stage", stage});
    const auto one = curve("alone"), two = curve("stage" + stage);
    // A number halfway between two codes may be rounded the other way when sums are computed in a different order.
    for (const auto& [step, loss] : one) EXPECT_NEAR(two.at(step), loss, 1e-2 * loss) << stage << " step " << step;
    EXPECT_NEAR(two.at(1), one.at(1), 1e-5 * one.at(1)) << stage;
  }
}

TEST_F(TrainCompressionTest, BeginsWithSomeLayersOfAModel) {
  run("teacher", batch(12, 1, 3));
  const auto reduced = [&](const std::string& output, const Strings& more) {
    const auto done = tessera(
        Strings{"train", "--model_name_or_path", at("teacher"), "--train_file", at("text.txt"), "--block_size", "32",
                "--learning_rate", "1e-2", "--logging_steps", "1", "--max_steps", "4", "--output_dir", at(output)} +
        compressed(R"("layer_reduction": {"enabled": true, "keep_number_layer": 1, "teacher_layer": [1],
            "module_name_prefix": "transformer.h", "other_module_name": ["transformer.wte", "transformer.wpe"]})") +
        Strings(std::begin(fixed_order), std::end(fixed_order)) + more);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    if (output != "resumed") {
      EXPECT_TRUE(contains(done.err, "does not list transformer.ln_f.bias, transformer.ln_f.weight")) << done.err;
    }
  };
  reduced("alone", {"--per_device_train_batch_size", "3", "--gradient_accumulation_steps", "4", "--save_steps", "2"});
  EXPECT_EQ(read_json(at("alone/config.json")).at("n_layer").as_int(), 1);
  EXPECT_FALSE(contains(model("alone"), "transformer.h.1."));
  EXPECT_LT(curve("alone").at(1), curve("teacher").at(1)) << "it knows what the teacher has learnt";
  const Strings two = {
      "--per_device_train_batch_size", "3", "--gradient_accumulation_steps", "2", "--num_processes", "2"};
  reduced("ddp", two);
  reduced("full_shard", two + Strings{"--strategy", "full_shard"});
  reduced("resumed", two + Strings{"--strategy", "full_shard", "--resume_from_checkpoint", at("alone/checkpoint-2")});
  for (const char* name : {"ddp", "full_shard", "resumed"})
    EXPECT_TRUE(model(name) == model("alone")) << name << ": bit by bit";
}

TEST_F(TrainCompressionTest, RefusesWhatItCannotRound) {
  const auto refused = [&](const Strings& more, const std::string& part) {
    const auto result = tessera(training("no", more));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_TRUE(contains(result.err, part)) << result.err;
    EXPECT_FALSE(path_exists(at("no")));
  };
  refused(compressed(weights(in_forward, 8, 8, 0, R"("attention.self")")), "'attention.self' matches no module");
  refused(compressed(weights(R"("quantize_groups": 7)", 8, 8, 0, gpt2_maps)), "quantize_groups is 7");
  refused(compressed(R"("head_pruning": {"shared_parameters": {"enabled": true}})"), "pruning heads of attention");
}

}  // namespace
}  // namespace tessera::testing
