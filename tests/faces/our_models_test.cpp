// Models of this library in a user's own loop: prepared and called like any module, on several real processes against
// one.
#include <tests/faces/loop.h>

#include <tessera/config/sections/model_config.h>
#include <tessera/faces/accelerator.h>
#include <tessera/models/load.h>

#include <torch/optim/sgd.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t kRows = 6, kLength = 8, kWords = 61;

std::shared_ptr<models::LanguageModel> make_model(const char* preset) {
  ModelConfig config;
  config.config_name = preset;
  config.config_overrides = concat("vocab_size=", kWords);
  return models::load_language_model(config, 3);
}

at::Tensor ids_of(int step) { return (at::arange(kRows * kLength).view({kRows, kLength}) * (step + 3)) % kWords; }

/// The mean over rows, as a user of torch::nn writes it.
at::Tensor next_token_loss(const at::Tensor& logits, const at::Tensor& ids) {
  return at::cross_entropy_loss(logits.slice(1, 0, -1).reshape({-1, kWords}), ids.slice(1, 1).reshape({-1}));
}

class OurModels : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OurModels, ::testing::Values(2, 3));

TEST_P(OurModels, are_called_in_the_users_loop) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    const auto plain = make_model(preset);
    plain->eval();  // without dropout, so that any number of ranks gives the same result
    torch::optim::SGD sgd(plain->parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0; step < 3; ++step) {
      plain->zero_grad();
      next_token_loss(plain->forward(ids_of(step)), ids_of(step)).backward();
      sgd.step();
    }
    Weights want;
    for (const auto& p : plain->named_parameters()) want[p.key()] = p.value().detach();
    run_ranks(GetParam(), [&](comm::World& world) {
      for (const char* strategy : {"ddp", "zero2", "full_shard"}) {
        Accelerator accelerator({.arguments = {concat("--strategy=", strategy)}});
        auto [model, optimizer] = accelerator.prepare(make_model(preset), OptimizerSettings{.name = "sgd", .lr = 0.1});
        model.eval();
        for (int step = 0; step < 3; ++step) {
          const at::Tensor ids = ids_of(step).chunk(world.size())[world.rank()];
          const auto scope = accelerator.accumulate(model);
          accelerator.backward(next_token_loss(model(ids), ids));
          optimizer.step();
          optimizer.zero_grad();
        }
        expect_close(weights_of(accelerator.training().sharded()), want, 2e-6, concat(preset, ", ", strategy));
      }
    });
  }
}

}  // namespace
