// Memory that a save needs in addition to what a rank holds.
#include <tests/faces/loop.h>

#include <tessera/base/file.h>
#include <tessera/faces/accelerator.h>
#include <tessera/faces/deepspeed.h>
#include <tessera/train/reporting/metrics.h>

#include <malloc.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adamw.h>

#include <fstream>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t wide = 1024, rows = 2048, layers = 6;
constexpr std::int64_t weights_bytes = 4 * (rows + layers * (wide + 1)) * wide, largest_bytes = 4 * rows * wide;

/// 8 MiB of table and six maps of 4 MiB each, the first of them frozen; all are units.
struct WideImpl : torch::nn::Module {
  torch::nn::Embedding table{rows, wide};
  std::vector<torch::nn::Linear> maps;
  WideImpl() {
    register_module("table", table);
    for (std::int64_t i = 0; i < layers; ++i)
      maps.push_back(register_module(concat("map", i), torch::nn::Linear(wide, wide)));
    for (at::Tensor& p : maps[0]->parameters()) p.requires_grad_(false);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = table(tokens);
    for (auto& map : maps) x = at::tanh(map(x));
    return x;
  }
};
TORCH_MODULE(Wide);

/// Peak growth of this process in bytes while `save` ran. Pages of its peers' shards count as its own once read, so it
/// reads them beforehand.
std::int64_t growth(comm::World& world, Sharded& sharded, const std::function<void()>& save) {
  for (int owner = 0; owner < world.size(); ++owner)
    sharded.gather_to_owners(std::vector<int>(sharded.named_parameters().size(), owner),
                             [](std::size_t, std::int64_t, const at::Tensor&) {});
  ::malloc_trim(0);
  world.group().barrier().wait();
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const std::int64_t before = train::resident_bytes();
  world.group().barrier().wait();
  save();
  const std::int64_t grown = train::peak_resident_bytes() - before;
  world.group().barrier().wait();
  return grown;
}

enum class Face { accelerator, deepspeed };

void measure(comm::World& world, Face face, const std::string& type, const std::string& folder,
             const std::function<void(const char* what, std::int64_t bytes)>& report) {
  const at::Tensor tokens = at::arange(16).view({2, 8});
  Wide net;
  const std::vector<std::string> arguments = {"--fsdp", "full_shard", "--transformer_layer_cls_to_wrap",
                                              "Linear,Embedding", "--save_state_dict_type=" + type};
  if (face == Face::deepspeed) {
    auto engine = initialize(net, {.arguments = arguments});
    engine.backward(engine(tokens).square().mean());
    engine.step();
    report("save_checkpoint", growth(world, engine.sharded(), [&] { engine.save_checkpoint(folder); }));
    report("save_model", growth(world, engine.sharded(), [&] { engine.save_model(folder); }));
    return;
  }
  Accelerator accelerator({.arguments = arguments});
  torch::optim::AdamW adamw(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  accelerator.backward(model(tokens).square().mean());
  optimizer.step();
  optimizer.zero_grad();
  Sharded& sharded = accelerator.training().sharded();
  report("save_state", growth(world, sharded, [&] { accelerator.save_state(path_join(folder, "state")); }));
  report("save_model", growth(world, sharded, [&] { accelerator.save_model(folder); }));
}

/// SHARDED: one unit, which is the largest tensor here; FULL, and a model: twice the largest tensor. In addition,
/// memory that does not depend on the model: messages, and the buffer in which files are read back.
TEST(SaveMemory, is_bounded_by_one_tensor_and_not_by_the_model) {
  constexpr std::int64_t buffers_bytes = 6 << 20;
  static_assert(weights_bytes > 2 * largest_bytes + buffers_bytes, "even the weights alone would be too much");
  for (const Face face : {Face::accelerator, Face::deepspeed})
    for (const std::string type : {"sharded", "full"}) {
      const TemporaryFolder folder;
      const auto outcomes = run_ranks_outcomes(2, [&](comm::World& world) {
        measure(world, face, type, folder.path(), [&](const char* what, std::int64_t bytes) {
          const bool parts = type == "sharded" && what != std::string("save_model");
          post(concat(type, ", ", what, ", rank ", world.rank(), ": ", static_cast<double>(bytes) / (1 << 20),
                      " MiB of ", weights_bytes >> 20, " MiB of weights"));
          EXPECT_LE(bytes, (parts ? largest_bytes : 2 * largest_bytes) + buffers_bytes) << what << ", " << type;
        });
      });
      for (const RankOutcome& outcome : outcomes) {
        EXPECT_TRUE(outcome.ok) << outcome.error;
        for (const auto& failure : outcome.failures) ADD_FAILURE() << failure.text;
        for (const std::string& line : outcome.posted) std::printf("  %s\n", line.c_str());
      }
    }
}

}  // namespace
