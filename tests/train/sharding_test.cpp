// A run's description of its units, and the options that follow from its settings.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>
#include <tessera/models/load.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/loop/sharding.h>
#include <tests/paths.h>

namespace tessera::train {
namespace {

ShardingUnit unit(const std::string& name, std::int64_t numel, std::int64_t ranks = 2) {
  return {.name = name,
          .parameters = {},
          .numel = numel,
          .padded = numel,
          .shard_bytes = 4 * numel / ranks,
          .present_bytes = 4 * numel,
          .prefetch = ""};
}

TEST(UnitTable, EqualUnitsAreOneRow) {
  std::vector<ShardingUnit> units = {unit("root", 4096)};
  for (int i = 0; i < 12; ++i) units.push_back(unit(concat("h.", i), 1024));
  units.push_back(unit("head", 2048));
  EXPECT_EQ(
      aligned(unit_table(units, true)),
      (std::vector<std::string>{
          "  unit    parameters    shard   present  gathered meanwhile", "  root         4.1 k  8.0 KiB  16.0 KiB  h.0",
          "  h.0-11  1.0 k each  2.0 KiB   4.0 KiB  the next one", "  head         2.0 k  4.0 KiB   8.0 KiB  -"}))
      << join(aligned(unit_table(units, true)), "\n");
  EXPECT_EQ(unit_table(units, false).front().size(), 4u);
  units[5].numel = 1000;  // a different one in between
  EXPECT_EQ(unit_table(units, true).size(), 1 + 5u);
}

TEST(UnitTable, WhatWasSeenBeatsTheGuess) {
  std::vector<ShardingUnit> units = {unit("root", 64), unit("b", 64), unit("a", 64)};
  units[0].prefetch = "a";
  const auto table = unit_table(units, true);
  EXPECT_EQ(table[1].back(), "a");
  EXPECT_EQ(table[2].back(), "-");
}

RunConfig small_config() {
  RunConfig config;
  config.model.config_name = "gpt2-tiny";
  config.model.config_overrides = "n_layer=3,n_embd=32,n_head=2,vocab_size=257,n_positions=32";
  return config;
}

TEST(ShardingOptions, FollowTheSettings) {
  RunConfig config = small_config();
  const auto model = models::load_model(config.model, 1);
  EXPECT_EQ(block_classes(*model), std::vector<std::string>{"Gpt2Block"});
  config.sharding.strategy = Strategy::full_shard;
  config.sharding.param_dtype = FloatType::bf16;
  config.sharding.backward_prefetch = layout::BackwardPrefetch::post;
  config.sharding.reshard_after_forward = Choice::no;
  config.sharding.cpu_offload = Offload::all;
  config.sharding.grad_compression = "powersgd:rank=2";
  const tessera::ShardingOptions options = sharding_options(config, *model, {});
  EXPECT_EQ(options.strategy, Strategy::full_shard);
  EXPECT_EQ(options.param_dtype, at::kBFloat16);
  EXPECT_FALSE(options.reduce_dtype.has_value());
  EXPECT_EQ(options.reshard_after_forward, false);
  EXPECT_EQ(options.backward_prefetch, layout::BackwardPrefetch::pre) << "left out: backward gathers nothing then";
  EXPECT_EQ(options.offload, Offload::all);
  EXPECT_EQ(options.reduction, comm::Reduction::sum);
  EXPECT_EQ(options.wrap.classes, std::vector<std::string>{"Gpt2Block"});
  ASSERT_NE(options.compression, nullptr);
  EXPECT_EQ(options.bucket_mb, 25);
  config.sharding.grad_compression = "powersgd:rnk=2";
  EXPECT_THROW(sharding_options(config, *model, {}), InputError);
}

// The loss is divided by the tokens of all ranks, so the gradients on the wire are the ranks' means already divided by
// the number of ranks; the option contains the remaining factor.
TEST(ShardingOptions, PredivideWhatTheLossDoesNot) {
  RunConfig config = small_config();
  const auto model = models::load_model(config.model, 1);
  EXPECT_EQ(sharding_options(config, *model, {}).gradient_predivide_factor, 1);
  config.parallel.num_processes = 2;
  config.optimization.gradient_predivide_factor = 8;
  EXPECT_EQ(sharding_options(config, *model, {}).gradient_predivide_factor, 4);
}

// Sharded refuses options that a strategy cannot use; a configuration may contain them.
TEST(ShardingOptions, LeaveOutWhatTheStrategyHasNoUseFor) {
  RunConfig config = small_config();
  const auto model = models::load_model(config.model, 1);
  config.sharding.forward_prefetch = false;
  config.sharding.limit_all_gathers = false;
  config.sharding.backward_prefetch = layout::BackwardPrefetch::post;
  config.sharding.reshard_after_forward = Choice::yes;
  config.sharding.persistence_threshold = 100;
  config.sharding.offload_folder = "/tmp";
  config.parallel.ddp_bucket_cap_mb = 3;
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::shard_grad_op,
                                  Strategy::full_shard, Strategy::hybrid_shard}) {
    config.sharding.strategy = strategy;
    const tessera::ShardingOptions options = sharding_options(config, *model, {});
    const StrategyRow& row = row_of(strategy);
    EXPECT_EQ(options.wrap.kind != layout::WrapPolicy::Kind::none, row.shard_parameters) << strategy;
    EXPECT_EQ(options.reshard_after_forward.has_value(), row.shard_parameters) << strategy;
    EXPECT_EQ(options.persistence_threshold, row.shard_parameters ? 100 : 0) << strategy;
    EXPECT_EQ(options.bucket_mb, row.shard_parameters ? 25 : 3) << strategy;
    EXPECT_EQ(options.limit_all_gathers, strategy == Strategy::ddp) << strategy;
    EXPECT_EQ(options.backward_prefetch == layout::BackwardPrefetch::post, row.shard_parameters) << strategy;
    EXPECT_EQ(options.offload_folder, "") << strategy;
  }
}

// Activations of a block, per token in fp32: 5 C and, in GPT-2 and BERT, 3 C of queries, keys and values and 2 F of the
// MLP; Llama's MLP has a gate (3 F) and may have fewer keys and values. Attention also keeps a number per head.
TEST(ShardingOptions, ActivationsFollowFromTheFamily) {
  const auto predicted = [](const std::string& name, const std::string& overrides) {
    RunConfig config;
    config.model.config_name = name;
    config.model.config_overrides = overrides;
    config.optimization.gradient_accumulation_steps = 2;  // keeps gradients from reusing activation memory
    const auto model = models::load_language_model(config.model, 1);
    return predicted_memory(config, *model, 1, 0, /*tokens=*/10).at("activations").as_int();
  };
  const auto of_a_block = [&](const std::string& name, const std::string& layers, const std::string& overrides) {
    return (predicted(name, layers + "=6," + overrides) - predicted(name, layers + "=3," + overrides)) / 3 / 10 / 4;
  };
  EXPECT_EQ(of_a_block("gpt2-tiny", "n_layer", "n_embd=32,n_head=2,vocab_size=257,n_positions=32"),
            8 * 32 + 2 * 128 + 2);
  EXPECT_EQ(of_a_block("llama-tiny", "num_hidden_layers",
                       "hidden_size=32,num_attention_heads=2,num_key_value_heads=1,head_dim=16,"
                       "intermediate_size=80,vocab_size=257"),
            6 * 32 + 2 * 16 + 3 * 80 + 2);
  EXPECT_EQ(of_a_block(tessera::testing::source_path("tests/fixtures/bert_tiny"), "num_hidden_layers",
                       "hidden_size=32,num_attention_heads=2,intermediate_size=128"),
            8 * 32 + 2 * 128 + 2);
}

TEST(ShardingOptions, PredictionCountsFourteenOrSixteenBytes) {
  RunConfig config = small_config();
  const auto model = models::load_model(config.model, 1);
  std::int64_t numel = 0;
  for (const auto& parameter : model->parameters()) numel += parameter.numel();
  EXPECT_EQ(predicted_bytes(config, *model, 1, 0).total(), 16 * numel);
  config.optimization.bf16_optimizer_states = true;
  EXPECT_EQ(predicted_bytes(config, *model, 1, 0).total(), 12 * numel);
}

// Two matrices of 32 x 128 elements in each of three blocks; tables and smaller parameters get no 8-bit states.
TEST(ShardingOptions, PredictionCountsStatesOfEightBits) {
  RunConfig config = small_config();
  const auto model = models::load_model(config.model, 1);
  std::int64_t numel = 0;
  for (const auto& parameter : model->parameters()) numel += parameter.numel();
  const std::int64_t narrow = 3 * 2 * 32 * 128;
  config.optimization.optim = OptimizerKind::adamw_8bit;
  EXPECT_NEAR(predicted_bytes(config, *model, 1, 0).total(), 16 * numel - 8 * narrow + narrow * 17 / 8, 1);
  config.optimization.optim = OptimizerKind::lion_8bit;
  EXPECT_NEAR(predicted_bytes(config, *model, 1, 0).total(), 12 * numel - 4 * narrow + narrow * 17 / 16, 1);
}

TEST(LossScale, FollowsTheSettings) {
  OptimizationConfig config;
  EXPECT_FALSE(make_loss_scale(config).has_value());
  config.fp16 = true;
  EXPECT_EQ(make_loss_scale(config)->scale(), 65536);
  config.loss_scale = 128;
  EXPECT_EQ(make_loss_scale(config)->scale(), 128);
}

}  // namespace
}  // namespace tessera::train
