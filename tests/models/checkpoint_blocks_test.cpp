// Gradient checkpointing of our models, chosen by number, name and part: the same results bit for bit, in less memory.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/base/error.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>

#include <tests/error_of.h>

#include <filesystem>

namespace {

using namespace tessera;
using parallel::CheckpointPart;
using parallel::CheckpointPlan;
using tessera::testing::error_of;

Value gpt2(const std::string& overrides = "") {
  return models::with_overrides(
      models::preset("gpt2-tiny"),
      "n_layer=4,n_embd=32,n_head=2,vocab_size=61,n_positions=24,attn_pdrop=0.1,resid_pdrop=0.1,"
      "embd_pdrop=0.1" +
          overrides);
}
Value llama() {
  return models::with_overrides(models::preset("llama-tiny"),
                                "num_hidden_layers=4,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,"
                                "intermediate_size=48,vocab_size=61,max_position_embeddings=24");
}

struct Result {
  double loss;
  std::vector<at::Tensor> gradients;
  at::Tensor next_random;
};

/// One step's loss and gradients on two rows; some documents end inside a row.
Result step(models::CausalLm& model, bool documents = true, bool autocast = false) {
  model.train();
  at::manual_seed(4);
  data::Batch batch;
  batch.ids = at::randint(0, 61, {2, 20}, at::kLong);
  batch.labels = batch.ids;
  if (documents) batch.document_starts = {0, 7, 20, 33};
  at::Tensor loss;
  {
    const nn::Autocast guard(autocast, at::kCPU);
    loss = model.loss(batch, 1.0 / 36);
  }
  batch = {};  // recomputation must not depend on tensors that the caller held
  return {loss.item<double>(), torch::autograd::grad({loss}, model.parameters()), at::rand({3})};
}

void expect_same(const Result& a, const Result& b) {
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << i;
  EXPECT_TRUE(at::equal(a.next_random, b.next_random));
}

class CheckpointBlocks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }
  std::shared_ptr<models::CausalLm> model() const {
    return models::make_model(GetParam() == std::string("gpt2") ? gpt2() : llama(), 1);
  }

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(CheckpointBlocks, same_bits_for_every_plan) {
  const auto model = this->model();
  const Result plain = step(*model), dense = step(*model, false), half = step(*model, true, true);
  const std::string block = GetParam() == std::string("gpt2") ? "transformer\\.h\\." : "model\\.layers\\.";
  const struct {
    CheckpointPlan plan;
    int regions;
  } cases[] = {{{}, 4},
               {{.every = 2}, 2},
               {{.every = 3}, 2},
               {{.names = block + "[013]"}, 3},
               {{.part = CheckpointPart::attention}, 4},
               {{.part = CheckpointPart::mlp}, 4},
               {{.every = 2, .part = CheckpointPart::mlp, .early_stop = false}, 2},
               {{.offload_inputs_to = std::filesystem::temp_directory_path().string()}, 4}};
  for (const auto& [plan, regions] : cases) {
    SCOPED_TRACE(concat("every ", plan.every, " names ", plan.names, " part ", static_cast<int>(plan.part)));
    models::checkpoint_blocks(*model, plan);
    const auto before = parallel::checkpoint_counts();
    expect_same(step(*model), plain);
    const auto after = parallel::checkpoint_counts();
    EXPECT_EQ(after.regions - before.regions, regions);
    EXPECT_EQ(after.recomputed - before.recomputed, regions);
    EXPECT_GT(after.dropped - before.dropped, regions);
    expect_same(step(*model, false), dense);
    expect_same(step(*model, true, true), half);
  }
  models::keep_activations(*model);
  const auto before = parallel::checkpoint_counts();
  expect_same(step(*model), plain);
  EXPECT_EQ(parallel::checkpoint_counts().regions, before.regions);
}

TEST_P(CheckpointBlocks, holds_inputs_only) {
  const auto model = this->model();
  const auto kept = [&] {
    const auto counting = parallel::counting_policy();
    const parallel::SavedTensors scope(counting);
    step(*model);
    EXPECT_EQ(counting->bytes().packed, 0);
    return counting->bytes().packed_peak;
  };
  const std::int64_t plain = kept();
  models::checkpoint_blocks(*model, {});
  const std::int64_t small = kept();
  const std::int64_t activation = 2 * 20 * 32 * 4;
  // inputs of 4 blocks; the last norm's input, output and statistics; embedding dropout's mask
  EXPECT_LE(small, 8 * activation);
  EXPECT_GT(plain, 4 * 8 * activation);
}

TEST_P(CheckpointBlocks, parts_are_the_modules_own_names) {
  const auto model = this->model();
  const std::vector<models::ModelPart> parts = model->parts();
  ASSERT_EQ(parts.size(), 12u);
  const auto modules = model->named_modules();
  std::vector<std::string> ran;
  for (const models::ModelPart& part : parts) EXPECT_TRUE(modules.contains(part.name)) << part.name;
  model->set_part_runner([&](const models::ModelPart& part, const models::PartFunction& f, const at::Tensor& x) {
    EXPECT_EQ(parts[ran.size()].name, part.name);
    EXPECT_EQ(parts[ran.size()].kind, part.kind);
    EXPECT_EQ(parts[ran.size()].block, part.block);
    ran.push_back(part.name);
    return f(x);
  });
  step(*model);
  EXPECT_EQ(ran.size(), parts.size());
}

TEST_P(CheckpointBlocks, generation_is_not_touched) {
  const auto model = this->model();
  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor ids = at::arange(8).view({1, 8});
  const at::Tensor plain = model->logits(ids);
  models::checkpoint_blocks(*model, {});
  EXPECT_TRUE(at::equal(model->logits(ids), plain));
}

TEST_P(CheckpointBlocks, a_plan_that_chooses_nothing_is_an_error) {
  const auto model = this->model();
  const std::string message = error_of([&] { models::checkpoint_blocks(*model, {.names = "blocks.*"}); });
  EXPECT_NE(message.find("'blocks.*'"), std::string::npos) << message;
  EXPECT_NE(message.find("; the first one is " + model->parts()[0].name), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointBlocks, ::testing::Values("gpt2", "llama"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CompressActivations, bf16_keeps_gpt2s_gradients_within_bound) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto model = models::make_model(
      models::with_overrides(models::preset("gpt2-tiny"), "n_layer=4,n_embd=128,n_head=4,vocab_size=61,n_positions=64"),
      1);
  const auto gradients = [&] {
    at::manual_seed(4);
    const at::Tensor ids = at::randint(0, 61, {4, 64}, at::kLong);
    return torch::autograd::grad({model->loss(ids, ids, 1.0 / 252)}, model->parameters());
  };
  const auto plain = gradients();
  for (const bool every_tensor : {false, true}) {
    CompressActivations small({.min_bytes = every_tensor ? 0 : 64 << 10});
    const auto compressed = gradients();
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      difference += (compressed[i] - plain[i]).square().sum().item<double>();
      norm += plain[i].square().sum().item<double>();
    }
    EXPECT_GT(small.bytes().tensors, 20);
    EXPECT_LE(std::sqrt(difference / norm), 0.004) << every_tensor;
    EXPECT_GT(difference, 0);
    RecordProperty(every_tensor ? "all" : "large", std::to_string(std::sqrt(difference / norm)));
  }
  at::set_num_threads(threads);
}

}  // namespace
