// The table of strategies, and the names that select its rows.
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/layout/strategy.h>

namespace {

using namespace tessera;

TEST(Strategy, rows_shard_parameters_only_with_gradients_and_those_only_with_optimizer_states) {
  for (std::size_t i = 0; i < words_of(Strategy{}).words.size(); ++i) {
    const Strategy strategy = static_cast<Strategy>(i);
    const StrategyRow& row = row_of(strategy);
    EXPECT_EQ(StrategyName(word_of(strategy)), strategy);
    EXPECT_LE(row.shard_parameters, row.shard_gradients) << strategy;
    EXPECT_LE(row.shard_gradients, row.shard_optimizer) << strategy;
    EXPECT_LE(row.reshard_after_forward, row.shard_parameters) << strategy;
    EXPECT_EQ(row.shard_group == ShardGroup::none, !row.shard_optimizer) << strategy;
    for (std::size_t j = 0; j < i; ++j) {
      const Strategy other = static_cast<Strategy>(j);
      EXPECT_EQ(same_strategy(strategy, other), strategy == Strategy::full_shard && other == Strategy::zero3);
    }
  }
}

TEST(Strategy, every_systems_names_lead_to_a_row) {
  EXPECT_EQ(StrategyName("NO_SHARD"), Strategy::ddp);
  EXPECT_EQ(StrategyName("DDP"), Strategy::ddp);
  EXPECT_EQ(StrategyName("full_shard"), Strategy::full_shard);
  EXPECT_EQ(StrategyName("SHARD_GRAD_OP"), Strategy::shard_grad_op);
  EXPECT_EQ(StrategyName("HYBRID_SHARD"), Strategy::hybrid_shard);
  EXPECT_EQ(StrategyName("_HYBRID_SHARD_ZERO2"), Strategy::hybrid_shard_zero2);
  EXPECT_EQ(StrategyName("1"), Strategy::full_shard);
  EXPECT_EQ(StrategyName("5"), Strategy::hybrid_shard_zero2);
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(StrategyName(concat("stage ", stage)), zero_strategy(stage));
    EXPECT_EQ(StrategyName(concat("zero", stage)), zero_strategy(stage));
    EXPECT_EQ(row_of(zero_strategy(stage)).zero_stage(), stage);
  }
}

TEST(Strategy, unknown_names_are_refused) {
  try {
    StrategyName("ful_shard");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'full_shard'"), std::string::npos) << error.what();
  }
  for (const char* name : {"0", "6", "stage 4", "zero4", ""}) EXPECT_THROW(StrategyName{name}, InputError) << name;
}

}  // namespace
