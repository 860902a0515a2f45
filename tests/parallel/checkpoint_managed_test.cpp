// Checkpointing, offload and compression of parameters whose memory is freed after every operator.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/nn/autocast.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>

#include <filesystem>

#include "checkpoint_modules.h"
#include "managed_materializer.h"

namespace {

using namespace tessera;
using namespace checkpoint_test;
using managed_test::DroppingMaterializer;

/// A typical user's training of three layers, each a unit; `run` wraps the layers.
class CheckpointOfManaged : public ::testing::Test {
 protected:
  void SetUp() override {
    plain_ = train_step(stack_, x_, plainly);
    for (const Layer& layer : stack_.blocks) materializer_.manage(layer->parameters());
  }
  void TearDown() override { EXPECT_TRUE(materializer_.all_left()); }

  const Stack<Layer> stack_{3, 16, 2};
  const at::Tensor x_ = input({5, 2, 16});
  Result plain_;
  DroppingMaterializer materializer_;
};

TEST_F(CheckpointOfManaged, checkpointed) { expect_same(train_step(stack_, x_, with_checkpoints), plain_); }

TEST_F(CheckpointOfManaged, nested) {
  const Runner nested = [](int, const Function& f, const at::Tensor& x) {
    return checkpointed([f](const at::Tensor& h) { return checkpointed(f, h); }, x);
  };
  expect_same(train_step(stack_, x_, nested), plain_);
}

TEST_F(CheckpointOfManaged, offloaded) {
  OffloadActivations off({.to = std::filesystem::temp_directory_path().string(), .min_bytes = 0});
  expect_same(train_step(stack_, x_, plainly), plain_);
  EXPECT_GT(off.bytes().tensors, 30);
  expect_same(train_step(stack_, x_, with_checkpoints), plain_);
}

TEST_F(CheckpointOfManaged, under_autocast) {
  const auto step = [&](const Runner& run) {
    at::Tensor loss;
    at::manual_seed(11);
    {
      const nn::Autocast autocast(true, at::kCPU);
      at::Tensor h = x_;
      for (int i = 0; i < 3; ++i) {
        Layer layer = stack_.blocks[static_cast<std::size_t>(i)];
        h = run(i, [layer](const at::Tensor& t) mutable { return layer(t); }, h);
      }
      loss = h.to(at::kFloat).square().mean();
    }
    return torch::autograd::grad({loss}, stack_.parameters());
  };
  expect_same(step(with_checkpoints), step(plainly));
}

TEST_F(CheckpointOfManaged, an_operator_that_is_refused_in_the_recomputation) {
  at::manual_seed(11);
  Layer layer = stack_.blocks[0];
  const at::Tensor loss = checkpointed([layer](const at::Tensor& t) mutable { return layer(t); }, x_).sum();
  materializer_.refuse = true;
  EXPECT_THROW(torch::autograd::grad({loss}, layer->parameters(), {}, /*retain_graph=*/true), Error);
  EXPECT_TRUE(materializer_.all_left());
  materializer_.refuse = false;
  EXPECT_NO_THROW(torch::autograd::grad({loss}, layer->parameters()));
}

}  // namespace
