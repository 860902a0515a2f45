// Training on the simulated device: the same losses as on the CPU, no finding, and the expected number of host
// waits per step.
#include <tests/device/device_training.h>

namespace tessera::testing {
namespace {

TEST_F(DeviceTraining, OneRank) { expect_same(1, gpt2() + batch(2, 2, 3)); }

// Dropout keeps elements by their positions, so it keeps the same ones on every device.
TEST_F(DeviceTraining, Dropout) {
  expect_same(1, gpt2(",resid_pdrop=0.1,attn_pdrop=0.1,embd_pdrop=0.1") + batch(2, 1, 3));
}

TEST_F(DeviceTraining, Bf16) { expect_same(1, gpt2() + batch(2, 1, 3) + Strings{"--bf16"}, 1e-3); }

TEST_F(DeviceTraining, Packing) { expect_same(1, gpt2() + batch(2, 1, 3) + Strings{"--packing"}); }

TEST_F(DeviceTraining, PackingInBf16) {
  expect_same(1, gpt2() + batch(2, 1, 3) + Strings{"--packing", "--bf16"}, 1e-3);
}

TEST_F(DeviceTraining, Muon) { expect_same(1, gpt2() + batch(2, 1, 3) + Strings{"--optim", "muon"}); }

TEST_F(DeviceTraining, Lamb) { expect_same(1, gpt2() + batch(2, 1, 3) + Strings{"--optim", "lamb"}); }

// One pass: states are not widened for the kernel and narrowed after it.
TEST_F(DeviceTraining, Bf16States) {
  expect_same(1, gpt2() + batch(2, 1, 3) + Strings{"--bf16_optimizer_states"});
  const std::string operations = report("cuda");
  EXPECT_TRUE(contains(operations, " adamw bytes ")) << operations;
  for (const char* pass : {"addcdiv", "bitwise_xor", "copy_ BFloat16 to Float", "round_to_bf16"})
    EXPECT_FALSE(contains(operations, pass)) << pass << operations;
}

// Lion's update uses ATen's operators, and then one pass to round its state.
TEST_F(DeviceTraining, Bf16StatesOfLion) {
  expect_same(1, gpt2() + batch(2, 1, 3) + Strings{"--bf16_optimizer_states", "--optim", "lion"}, 1e-3);
  const std::string operations = report("cuda");
  EXPECT_TRUE(contains(operations, " round_to_bf16 bytes ")) << operations;
  EXPECT_FALSE(contains(operations, "bitwise_xor")) << operations;
}

TEST_F(DeviceTraining, ShardedBf16States) {
  expect_same(2, gpt2() + batch(2, 1, 3) + Strings{"--fsdp", "full_shard", "--bf16_optimizer_states"});
}

// Parameters are cast in the gathers (one each, of a single block); their gradients are added to the sum, squared, and
// used: nothing else passes over memory of their size.
TEST_F(DeviceTraining, PassesOverTheParametersOfOneShardedRank) {
  const auto bytes = [&](int steps) {
    const std::string name = concat("steps", steps);
    train(name, true, 1,
          Strings{"--config_name", "gpt2-tiny", "--config_overrides",
                  "n_layer=1,n_embd=256,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256",
                  "--fsdp", "full_shard", "--bf16", "--param_dtype", "bf16", "--bf16_optimizer_states",
                  "--save_strategy", "no"} +
              batch(1, 1, steps));
    std::map<std::string, double> result;
    for (const std::string& line : split(report(name), '\n')) {
      if (!line.starts_with("OPERATION x")) continue;
      const std::size_t begin = line.find(' ', 11) + 1, end = line.find(" bytes ");
      result[line.substr(begin, end - begin)] += std::stod(line.substr(end + 7));
    }
    return result;
  };
  std::map<std::string, double> step = bytes(3);
  for (const auto& [operation, all] : bytes(2)) step[operation] -= all;
  const double parameters = step["adamw"] / 20;  // bytes of each: 12 read, 8 written
  EXPECT_GT(parameters, 8e5);
  const std::map<std::string, double> passes = {{"adamw", 20},
                                                {"add_exact_squares", 4},
                                                {"aten::copy_ BFloat16 to Float", 6},
                                                {"aten::copy_ Float to BFloat16", 6}};
  for (const auto& [operation, moved] : step) {
    if (operation.starts_with("aten::mm") || operation.starts_with("aten::addmm"))
      continue;  // products read parameters
    const auto pass = passes.find(operation);
    EXPECT_NEAR(moved / parameters, pass == passes.end() ? 0 : pass->second, 1) << operation;
  }
}

TEST_F(DeviceTraining, Ddp) { expect_same(2, gpt2() + batch(2, 1, 3)); }

TEST_F(DeviceTraining, FullShardWithCheckpointing) {
  expect_same(2, gpt2() + batch(2, 1, 3) + Strings{"--fsdp", "full_shard", "--gradient_checkpointing"});
}

TEST_F(DeviceTraining, Zero2) { expect_same(2, gpt2() + batch(2, 1, 3) + Strings{"--zero_stage", "2"}); }

TEST_F(DeviceTraining, TensorParallel) { expect_same(2, gpt2() + batch(2, 1, 3) + Strings{"--tp_size", "2"}); }

TEST_F(DeviceTraining, Pipeline) { expect_same(2, gpt2() + batch(2, 2, 3) + Strings{"--pp_size", "2"}); }

TEST_F(DeviceTraining, ExpertParallel) { expect_same(2, mixtral() + batch(2, 1, 3) + Strings{"--ep_size", "2"}); }

TEST_F(DeviceTraining, ExpertsWithinACapacity) {
  expect_same(1, mixtral() + batch(2, 1, 3) + Strings{"--moe_capacity_factor", "0.6"});
}

// If rounding on the device and on the CPU sends a token to different experts, losses differ by more than rounding; a
// loop over experts on the device differs as much.
TEST_F(DeviceTraining, ExpertsInBf16) { expect_same(1, mixtral() + batch(2, 2, 3) + Strings{"--bf16"}, 3e-3); }

TEST_F(DeviceTraining, ShardedExpertsInBf16) {
  expect_same(2, mixtral() + batch(2, 1, 3) + Strings{"--bf16", "--fsdp", "full_shard", "--gradient_checkpointing"},
              3e-3);
}

TEST_F(DeviceTraining, ExpertsCutOverTensorParallelRanksInBf16) {
  expect_same(2, mixtral() + batch(2, 1, 3) + Strings{"--bf16", "--tp_size", "2"}, 3e-3);
}

TEST_F(DeviceTraining, ContextParallel) { expect_same(2, gpt2() + batch(2, 1, 3) + Strings{"--cp_size", "2"}); }

TEST_F(DeviceTraining, OptimizerOffload) {
  expect_same(2, gpt2() + batch(2, 1, 3) + Strings{"--fsdp", "full_shard", "--cpu_offload", "optimizer"});
}

TEST_F(DeviceTraining, ParameterOffload) {
  expect_same(2, gpt2() + batch(2, 2, 3) + Strings{"--fsdp", "full_shard", "--cpu_offload", "params"});
}

TEST_F(DeviceTraining, RanksThatShareAGpu) { expect_same(2, gpt2() + batch(2, 1, 3), 1e-6, {{"DOUBLE_ONE_GPU", "1"}}); }

TEST_F(DeviceTraining, SavesAndResumes) {
  const Strings settings = gpt2() + batch(2, 1, 4) + Strings{"--fsdp", "full_shard", "--save_steps", "2"};
  const Run whole = train("whole", true, 2, settings);
  const Run rest = train("rest", true, 2, settings + Strings{"--resume_from_checkpoint", at("whole/checkpoint-2")});
  EXPECT_EQ(rest.findings, Strings{});
  EXPECT_EQ(rest.losses.at(3), whole.losses.at(3));
  EXPECT_EQ(rest.losses.at(4), whole.losses.at(4));
}

// The n-th wait for a collective is skipped; the numbers stay right, so only the clocks can detect it.
TEST_F(DeviceTraining, ALeftOutWaitIsFound) {
  const Strings settings = gpt2() + batch(2, 1, 3) + Strings{"--fsdp", "full_shard", "--save_strategy", "no"};
  for (const char* wait : {"62", "66", "70", "74", "82"}) {
    const Run run = train(concat("without_", wait), true, 2, settings, {{"DOUBLE_SKIP_WAIT", wait}});
    EXPECT_NE(run.findings, Strings{}) << "wait " << wait;
  }
}

// The device skips such a step by itself; the host learns of it one step later.
TEST_F(DeviceTraining, AStepThatIsNotFiniteIsSkipped) {
  const auto run = [&](const Strings& more) {
    return tessera(Strings{"train",        "--tokenizer_name",       "byte",     "--train_file",
                           at("text.txt"), "--block_size",           "32",       "--learning_rate",
                           "1e30",         "--lr_scheduler_type",    "constant", "--logging_steps",
                           "100",          "--save_steps",           "3",        "--output_dir",
                           at("diverged"), "--overwrite_output_dir", "--device", "cuda"} +
                       gpt2() + batch(2, 1, 6) + more,
                   {{"LD_LIBRARY_PATH", build_path("double")}});
  };
  const auto skipped = run({"--nan_policy", "skip"});
  EXPECT_TRUE(contains(skipped.err, "step 2 is skipped (--nan_policy skip; 1 in a row, at most 10)")) << skipped.err;
  EXPECT_TRUE(contains(skipped.err, "step 6 is skipped (--nan_policy skip; 5 in a row, at most 10)")) << skipped.err;
  EXPECT_EQ(read_file(at("diverged/checkpoint-3/model.safetensors")),
            read_file(at("diverged/checkpoint-6/model.safetensors")));
  EXPECT_EQ(read_file(at("diverged/checkpoint-3/optimizer.safetensors")),
            read_file(at("diverged/checkpoint-6/optimizer.safetensors")));
  const std::string state = at("diverged/checkpoint-6/tessera_state.json");
  EXPECT_EQ(parse_json(read_file(state), state).at("optimizer_steps").as_int(), 1);

  const auto limited = run({"--nan_policy", "skip", "--nan_skip_limit", "2"});
  EXPECT_EQ(limited.exit_code, 1) << limited.err;
  EXPECT_TRUE(contains(limited.err, "step 4: the gradient norm is ")) << limited.err;
  const auto failed = run({});
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_TRUE(contains(failed.err, "step 2: the gradient norm is ")) << failed.err;
}

// A device that is slower than the host: the step's time includes its work, and that time is not charged to logging.
TEST_F(DeviceTraining, TimesIncludeTheDevicesWork) {
  constexpr double milliseconds = 150;
  for (const char* every : {"1", "4"}) {
    train(
        "slow", true, 1,
        gpt2() + batch(2, 1, 4) + Strings{"--save_strategy", "no", "--logging_steps", every, "--overwrite_output_dir"},
        {{"DOUBLE_EVENT_MS", concat(static_cast<int>(milliseconds))}});
    std::size_t logs = 0;
    for (const std::string& line : split(read_file(at("slow/metrics.jsonl")), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, "metrics.jsonl");
      const Value* const time = value.find("step_time_ms");
      if (time == nullptr) continue;
      ++logs;
      EXPECT_GE(time->as_real(), 0.9 * milliseconds) << line;
      EXPECT_LT(value.at("phase_ms").at("other").as_real(), 0.5 * milliseconds) << line;
    }
    EXPECT_EQ(logs, every == std::string("1") ? 4U : 1U);
  }
}

TEST_F(DeviceTraining, WaitsOfTheHostPerStep) {
  EXPECT_EQ(waits_per_step("gpt2", gpt2()), 0U);
  EXPECT_EQ(waits_per_step("gpt2 with bf16 states", gpt2() + Strings{"--bf16_optimizer_states"}), 0U);
  EXPECT_EQ(waits_per_step("llama", llama()), 0U);
  EXPECT_EQ(waits_per_step("mixtral", mixtral()), 0U);
  EXPECT_EQ(waits_per_step("mixtral in bf16", mixtral() + Strings{"--bf16"}), 0U);
}

}  // namespace
}  // namespace tessera::testing
