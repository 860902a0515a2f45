// The table of strategies and the names that lead to its rows.
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/parallel/sharding/strategy.h>

#include <set>

namespace {

using namespace tessera;
using namespace tessera::parallel;

TEST(Strategy, the_table_is_the_designs) {
  std::set<std::string_view> names;
  for (const Strategy& s : strategies()) {
    EXPECT_TRUE(names.insert(s.name).second) << s.name;
    EXPECT_EQ(&find_strategy(s.name), &s);
    // Sharded parameters need sharded gradients, those sharded optimizer states; nothing else makes sense.
    EXPECT_LE(s.shard_parameters, s.shard_gradients) << s.name;
    EXPECT_LE(s.shard_gradients, s.shard_optimizer) << s.name;
    EXPECT_LE(s.reshard_after_forward, s.shard_parameters) << s.name;
    EXPECT_EQ(s.shard_group == ShardGroup::none, !s.shard_optimizer) << s.name;
  }
  EXPECT_EQ(names.size(), 7u);
}

TEST(Strategy, every_systems_names_lead_to_a_row) {
  EXPECT_EQ(find_strategy("NO_SHARD").name, "ddp");
  EXPECT_EQ(find_strategy("DDP").name, "ddp");
  EXPECT_EQ(find_strategy("full_shard").name, "zero3");
  EXPECT_EQ(find_strategy("SHARD_GRAD_OP").name, "shard_grad_op");
  EXPECT_EQ(find_strategy("HYBRID_SHARD").name, "hybrid_shard");
  EXPECT_EQ(find_strategy("_HYBRID_SHARD_ZERO2").name, "hybrid_shard_zero2");
  EXPECT_EQ(find_strategy("stage 1").name, "zero1");
  EXPECT_EQ(find_fsdp_strategy(1).name, "zero3");
  EXPECT_EQ(find_fsdp_strategy(2).name, "shard_grad_op");
  EXPECT_EQ(find_fsdp_strategy(3).name, "ddp");
  EXPECT_EQ(find_fsdp_strategy(4).name, "hybrid_shard");
  EXPECT_EQ(find_fsdp_strategy(5).name, "hybrid_shard_zero2");
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(find_zero_stage(stage).name,
              stage == 0 ? std::string_view("ddp") : find_strategy(concat("zero", stage)).name);
}

TEST(Strategy, unknown_names_are_refused) {
  try {
    find_strategy("ful_shard");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'full_shard'"), std::string::npos) << error.what();
  }
  for (const int number : {0, 6, -1}) EXPECT_THROW(find_fsdp_strategy(number), InputError);
  for (const int stage : {-1, 4}) EXPECT_THROW(find_zero_stage(stage), InputError);
}

}  // namespace
