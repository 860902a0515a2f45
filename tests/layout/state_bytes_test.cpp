// State bytes of a rank: the strategies' formulas against the engine's layouts.

#include <tessera/layout/state_bytes.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/text.h>

namespace tessera::layout {
namespace {

/// A root with an embedding and `blocks` blocks of two parameters each.
ModuleTree small_model(std::int64_t blocks, std::int64_t width) {
  ModuleTree tree;
  tree.modules.push_back({"", "Model", 0, {0}, false});
  tree.parameters.push_back({"wte", {257, width}});
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::size_t first = tree.parameters.size();
    tree.modules.push_back({concat("h.", b), "Block", 0, {first, first + 1}, false});
    tree.parameters.push_back({concat("h.", b, ".weight"), {width, 4 * width}});
    tree.parameters.push_back({concat("h.", b, ".bias"), {width}});
  }
  return tree;
}

std::int64_t all_bytes(const ModuleTree& tree) {
  std::int64_t bytes = 0;
  for (const Parameter& parameter : tree.parameters) bytes += parameter.bytes();
  return bytes;
}

StateBytesOptions sharded(bool optimizer, bool gradients, bool parameters, int ranks) {
  StateBytesOptions options;
  options.strategy = {optimizer, gradients, parameters, parameters, ShardGroup::all};
  options.shard_ranks = ranks;
  options.wrap.kind = WrapPolicy::Kind::by_class;
  options.wrap.classes = {"Block"};
  return options;
}

TEST(StateBytes, PlainDataParallelismHoldsSixteenBytesPerParameter) {
  const ModuleTree tree = small_model(3, 64);
  const StateBytes bytes = state_bytes(tree, std::vector<bool>(tree.parameters.size(), true), {});
  EXPECT_EQ(bytes.parameters, all_bytes(tree));
  EXPECT_EQ(bytes.gradients, all_bytes(tree));
  EXPECT_EQ(bytes.optimizer, 2 * all_bytes(tree));
  EXPECT_EQ(bytes.buffers, 0);
}

// Per rank: ZeRO-1 and ZeRO-2 4 M + (4 + 8) M / S, ZeRO-3 16 M / S, up to padding.
TEST(StateBytes, EachStageDividesMore) {
  const ModuleTree tree = small_model(6, 128);
  const std::vector<bool> trained(tree.parameters.size(), true);
  const double m = static_cast<double>(all_bytes(tree));
  for (const int ranks : {2, 3, 4, 8}) {
    const StateBytes one = state_bytes(tree, trained, sharded(true, false, false, ranks));
    EXPECT_NEAR(static_cast<double>(one.parameters), m, 0.01 * m) << ranks;
    EXPECT_NEAR(static_cast<double>(one.gradients), m / ranks, 0.01 * m) << ranks;
    EXPECT_LE(static_cast<double>(one.optimizer), 2 * m / ranks * 1.01) << ranks;
    const StateBytes three = state_bytes(tree, trained, sharded(true, true, true, ranks));
    EXPECT_NEAR(static_cast<double>(three.parameters), m / ranks, 0.01 * m) << ranks;
    EXPECT_NEAR(static_cast<double>(three.gradients), m / ranks, 0.01 * m) << ranks;
    EXPECT_LT(three.buffers, 2 * all_bytes(tree)) << ranks;
  }
}

TEST(StateBytes, FrozenParametersHaveNoGradients) {
  const ModuleTree tree = small_model(2, 64);
  std::vector<bool> trained(tree.parameters.size(), false);
  trained.back() = true;  // a bias of 64 elements
  const StateBytes bytes = state_bytes(tree, trained, sharded(true, true, true, 2));
  EXPECT_EQ(bytes.gradients, 64 * 4);  // padded to 2 x 64, halved
  EXPECT_LE(bytes.optimizer, 64 * 8);
  EXPECT_GE(bytes.parameters, all_bytes(tree) / 2);
}

TEST(StateBytes, WholeUnitsAddUpWithoutResharding) {
  const ModuleTree tree = small_model(8, 64);
  const std::vector<bool> trained(tree.parameters.size(), true);
  StateBytesOptions options = sharded(true, true, true, 2);
  const std::int64_t resharding = state_bytes(tree, trained, options).buffers;
  options.strategy.reshard_after_forward = false;
  EXPECT_GT(state_bytes(tree, trained, options).buffers, resharding);
}

TEST(StateBytes, SmallParametersStayWhole) {
  const ModuleTree tree = small_model(4, 128);
  const std::vector<bool> trained(tree.parameters.size(), true);
  StateBytesOptions options = sharded(true, true, true, 2);
  const std::int64_t before = state_bytes(tree, trained, options).parameters;
  options.persistence_threshold = 128;  // the other half of the biases too
  EXPECT_EQ(state_bytes(tree, trained, options).parameters - before, 4 * 128 * 4 / 2);
}

// The parts of all ranks add up to the whole, for any model and number of ranks.
RC_GTEST_PROP(StateBytes, RanksPartsAddUp, ()) {
  const ModuleTree tree = small_model(*rc::gen::inRange<std::int64_t>(0, 5), *rc::gen::inRange<std::int64_t>(1, 90));
  std::vector<bool> trained;
  std::int64_t trained_numel = 0;
  for (const Parameter& parameter : tree.parameters) {
    trained.push_back(*rc::gen::arbitrary<bool>());
    if (trained.back()) trained_numel += parameter.numel();
  }
  if (tree.modules.size() == 1) return;  // without a block the class would match nothing
  StateBytesOptions options = sharded(true, true, *rc::gen::arbitrary<bool>(), *rc::gen::inRange(2, 9));
  std::int64_t optimizer = 0;
  for (options.rank = 0; options.rank < options.shard_ranks; ++options.rank) {
    const StateBytes bytes = state_bytes(tree, trained, options);
    optimizer += bytes.optimizer;
    RC_ASSERT(bytes.parameters * options.shard_ranks >= all_bytes(tree));
  }
  RC_ASSERT(optimizer == 8 * trained_numel);
}

}  // namespace
}  // namespace tessera::layout
