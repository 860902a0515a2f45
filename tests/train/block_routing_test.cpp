// The blocks and tokens that a step skips.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/models/load.h>
#include <tessera/train/features/block_routing.h>
#include <tests/error_of.h>
#include <tests/paths.h>

#include <cmath>

namespace tessera::train {
namespace {

using models::ModelPart;

std::shared_ptr<models::LanguageModel> gpt2() {
  return models::load_language_folder(tessera::testing::source_path("tests/fixtures/gpt2_tiny"));
}

config::RandomLtd half_of_layer_1() {
  return {.layers = {1},
          .total_layers = gpt2()->shape().blocks,
          .min_value = 4,
          .max_value = 16,
          .require_steps = 6,
          .seq_per_step = 4};
}

TEST(BlockRouting, BlocksAreKeptAsOftenAsTheScheduleSays) {
  const auto model = gpt2();
  const std::int64_t blocks = model->shape().blocks, last = blocks - 1;
  BlockRouting routing(*model, config::ProgressiveLayerDrop{.theta = 0.5, .gamma = 1}, std::nullopt, 42);
  EXPECT_EQ(routing.keep_probability(last), 1);
  routing.set_step(2);
  const double theta = 0.5 * std::exp(-1.0) + 0.5;
  EXPECT_DOUBLE_EQ(routing.keep_probability(last),
                   1 - static_cast<double>(last) / static_cast<double>(blocks) * (1 - theta));
  int kept = 0;
  const int steps = 4000;
  for (int step = 100; step < 100 + steps; ++step) {
    routing.set_step(step);
    EXPECT_TRUE(routing.keeps(0));
    kept += routing.keeps(last) ? 1 : 0;
  }
  const double p = routing.keep_probability(last);
  EXPECT_NEAR(static_cast<double>(kept) / steps, p, 5 * std::sqrt(p * (1 - p) / steps));
}

TEST(BlockRouting, ABlockIsTheIdentityOrScaled) {
  const auto model = gpt2();
  model->train();
  BlockRouting routing(*model, config::ProgressiveLayerDrop{.theta = 0.1, .gamma = 10}, std::nullopt, 42);
  const std::int64_t last = model->shape().blocks - 1;
  ModelPart part;
  for (const ModelPart& each : model->parts())
    if (each.kind == ModelPart::Kind::block && each.block == last) part = each;
  const at::Tensor x = at::randn({2, 8, 4});
  const auto twice = [](const at::Tensor& y) { return 2 * y; };
  bool dropped = false, kept = false;
  for (int step = 10; step < 60; ++step) {
    routing.set_step(step);
    const at::Tensor y = routing.run(part, twice, x);
    if (routing.keeps(last)) {
      kept = true;
      EXPECT_TRUE(at::allclose(y, x + x / routing.keep_probability(last)));
    } else {
      dropped = true;
      EXPECT_TRUE(at::equal(y, x));
      model->zero_grad();
      y.sum().backward();
      for (const auto& item : model->named_parameters())
        if (item.key().starts_with(part.name + ".")) {
          ASSERT_TRUE(item.value().grad().defined()) << item.key();
          EXPECT_EQ(item.value().grad().abs().sum().item<float>(), 0) << item.key();
        }
    }
  }
  EXPECT_TRUE(dropped && kept);
  model->eval();
  EXPECT_TRUE(at::equal(routing.run(part, twice, x), 2 * x)) << "evaluation uses every block";
}

TEST(BlockRouting, TokensFollowTheSchedule) {
  const config::RandomLtd ltd = half_of_layer_1();
  EXPECT_EQ(ltd.tokens_at(0), 4);
  EXPECT_EQ(ltd.tokens_at(1), 4);  // 6
  EXPECT_EQ(ltd.tokens_at(2), 8);
  EXPECT_EQ(ltd.tokens_at(5), 12);  // 14
  EXPECT_EQ(ltd.tokens_at(6), 16);
  EXPECT_EQ(ltd.tokens_at(1000000), 16);
}

TEST(BlockRouting, TokensAreSeenInOrderAndTheOthersPassBy) {
  const auto model = gpt2();
  model->train();
  BlockRouting routing(*model, std::nullopt, half_of_layer_1(), 42);
  EXPECT_FALSE(routing.kept_tokens(0, 2, 16).defined()) << "not among its layers";
  EXPECT_FALSE(routing.kept_tokens(1, 2, 4).defined()) << "rows are not longer";
  const at::Tensor tokens = routing.kept_tokens(1, 3, 16);
  ASSERT_EQ(tokens.sizes(), at::IntArrayRef({3, 4}));
  EXPECT_TRUE((tokens.diff(1, 1) > 0).all().item<bool>());
  EXPECT_FALSE(at::equal(tokens[0], tokens[1])) << "each row has its own";
  // One process gets the same rows as two.
  data::Batch second;
  second.first_row = 2;
  routing.begin_batch(second);
  EXPECT_TRUE(at::equal(routing.kept_tokens(1, 1, 16)[0], tokens[2]));
  routing.begin_batch({});

  ModelPart part;
  for (const ModelPart& each : model->parts())
    if (each.kind == ModelPart::Kind::block && each.block == 1) part = each;
  const at::Tensor x = at::randn({3, 16, 5});
  at::Tensor seen;
  const at::Tensor y = routing.run(
      part,
      [&](const at::Tensor& z) {
        seen = z;
        return 3 * z;
      },
      x);
  at::Tensor expected = x.clone();
  for (std::int64_t row = 0; row < 3; ++row)
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t token = tokens[row][i].item<std::int64_t>();
      EXPECT_TRUE(at::equal(seen[row][i], x[row][token]));
      expected[row][token] *= 3;
    }
  EXPECT_TRUE(at::equal(y, expected));
}

TEST(BlockRouting, WhatCannotBeLeftOutIsRefused) {
  const auto model = gpt2();
  config::RandomLtd ltd = half_of_layer_1();
  ltd.total_layers += 1;
  EXPECT_THROW(BlockRouting(*model, std::nullopt, ltd, 1), InputError);
  const auto llama = models::load_language_folder(tessera::testing::source_path("tests/fixtures/llama/gemma"));
  ltd.total_layers = llama->shape().blocks;
  EXPECT_THROW(BlockRouting(*llama, std::nullopt, ltd, 1), InputError);
  EXPECT_NO_THROW(BlockRouting(*llama, config::ProgressiveLayerDrop{}, std::nullopt, 1));
  BlockRouting routing(*model, std::nullopt, half_of_layer_1(), 42);
  data::Batch packed;
  packed.document_starts = {{0, 4}};
  EXPECT_THROW(routing.begin_batch(packed), InputError);
}

}  // namespace
}  // namespace tessera::train
