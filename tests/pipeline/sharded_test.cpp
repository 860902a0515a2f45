// Pipelines whose stages are data-parallel: two replicas of two ranks.
#include <tests/pipeline/chain.h>

#include <tessera/comm/mesh_groups.h>
#include <tessera/parallel/fully_shard.h>

namespace {

using namespace tessera;
using namespace tessera::testing;
using layout::schedule::Schedule;
using parallel::PipelineExecutor;
using parallel::PipelineOptions;

struct Part : torch::nn::Module {
  explicit Part(Chain& chain) {
    for (auto& [index, layer] : chain.layers) {
      const auto parameters = layer.parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) register_parameter(concat(index, "_", i), parameters[i]);
    }
  }
};

class DataParallelPipeline : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Strategy, DataParallelPipeline,
                         ::testing::Values("ddp", "zero1", "zero2", "shard_grad_op", "full_shard"));

TEST_P(DataParallelPipeline, EqualsOneProcess) {
  constexpr int micro_batches = 3;
  const ChainResult reference = chain_reference(2 * micro_batches, at::kDouble);
  run_ranks(4, [&](comm::World& world) {
    const layout::Mesh mesh = layout::parse_mesh("pp=2,dp=2");
    const comm::Group pipe_group = comm::mesh_group(world, mesh, std::vector{layout::Axis::pp}),
                      copies_group = comm::mesh_group(world, mesh, std::vector{layout::Axis::dp_shard});
    const int copy = copies_group.rank(), place = pipe_group.rank();
    for (const char* name : {"1f1b", "interleaved", "zb-h1", "zbv"}) {
      const Schedule schedule =
          layout::schedule::make_schedule(name, {.ranks = 2, .stages_per_rank = 0, .micro_batches = micro_batches});
      Chain chain(schedule, place, at::kDouble);
      chain.first = copy * micro_batches;
      Part part(chain);
      Sharded sharded(part, {.strategy = GetParam(), .group = copies_group});
      PipelineOptions options;
      options.group = pipe_group;
      options.stages = chain.pipeline_stages(schedule, place);
      PipelineExecutor executor(std::move(options));
      for (int batch = 0; batch < 2; ++batch) {
        sharded.zero_grad();
        {
          const Sharded::AccumulateLocally whole(sharded);
          executor.run(schedule);
        }
        sharded.reduce();
        for (const ShardedParameter& mine : sharded.named_parameters()) {
          std::string key = mine.name;
          key[key.find('_')] = '.';
          const at::Tensor wanted = reference.gradients.at(key).flatten().narrow(0, mine.begin, mine.local.numel());
          if (mine.local.numel() == 0) continue;
          ASSERT_TRUE(mine.local.grad().defined()) << name << ": " << key;
          EXPECT_LE((mine.local.grad().flatten() - wanted).abs().max().item<double>(), 1e-12) << name << ": " << key;
        }
      }
    }
  });
}

}  // namespace
