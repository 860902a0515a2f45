/// \file
/// Pipeline parallelism against one process: the same Llama on the same micro-batches, forward, backward, AdamW.
/// Prints one JSON line: tokens/s of the median step, CPU seconds of a step of all ranks, the last loss; with several
/// ranks `ideal`, the share of the ranks' time that the schedule leaves for computing if messages take no time and FLOP
/// tell what stages cost, and `cut`, the blocks of every stage (the first has the embeddings, too, the last the head).
///
///   OMP_NUM_THREADS=2 pipeline_bench                                    one process, two threads
///   OMP_NUM_THREADS=1 tessera launch --nproc_per_node 2 pipeline_bench  as many stages as ranks, or twice as many
///   [--steps 6 --layers 4 --d 512 --heads 8 --kv 8 --intermediate 1408 --vocab 8192 --T 256 --B 8 --micro_batches 8
///    --schedule 1f1b --layout 'Et*3|tL']
///
/// Without --layout the model is cut by cost: the most expensive stage is as cheap as can be.
/// bench/pipeline.py runs both and PyTorch's torch.distributed.pipelining, round by round.

#include <bench/small_llama.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/comm/world.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/layout/schedule/timing.h>
#include <tessera/layout/stages.h>
#include <tessera/models/load.h>
#include <tessera/nn/accumulate.h>
#include <tessera/nn/allocator.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/pipeline/executor.h>

#include <functional>
#include <string>
#include <vector>

using namespace tessera;
namespace schedule = tessera::layout::schedule;

namespace {

/// MFLOP per token. A product of matrices costs the same in all three passes. Attention (causal: half of the products)
/// has no weights, and computes its scores again in backward. The head computes its gradients in F, chunk by chunk
/// (nn/linear_cross_entropy.h), the embeddings next to nothing.
struct Flop {
  explicit Flop(const small_llama::Numbers& a) {
    const auto of = [&](const char* option) { return static_cast<double>(a.at(option)); };
    const double d = of("--d"), head = d / of("--heads");
    const double products = 2e-6 * d * (2 * d + 2 * of("--kv") * head + 3 * of("--intermediate"));
    const double attention = 2e-6 * of("--T") * d;
    block = {
        .forward = products + attention, .input_gradient = products + 2.5 * attention, .weight_gradient = products};
    end = 3 * 2e-6 * d * of("--vocab");
  }
  double of(const layout::StagePart& part) const {
    const schedule::StageCosts costs = costs_of(part);
    return costs.forward + costs.whole_backward();
  }
  schedule::StageCosts costs_of(const layout::StagePart& part) const {
    const auto blocks = static_cast<double>(part.blocks);
    return {.forward = blocks * block.forward + (part.end ? end : 0),
            .input_gradient = blocks * block.input_gradient,
            .weight_gradient = blocks * block.weight_gradient};
  }

  schedule::StageCosts block;
  double end = 0;
};

std::vector<layout::StagePart> cut(const small_llama::Numbers& a, const std::string& asked, const Flop& flop,
                                   int stages) {
  const std::int64_t layers = a.at("--layers");
  if (!asked.empty()) return layout::parse_stage_layout(asked, layers, stages);
  const std::vector<double> blocks(static_cast<std::size_t>(layers), flop.of({.blocks = 1}));
  return layout::cut_by_cost({.blocks = blocks, .end = flop.end}, stages);
}

/// "ideal" and "cut" as members of JSON.
std::string about(const schedule::Schedule& steps, const std::vector<layout::StagePart>& parts, const Flop& flop) {
  schedule::Costs costs{.stages = {}};
  double sum = 0;
  std::vector<std::string> blocks;
  for (const layout::StagePart& part : parts) {
    costs.stages.push_back(flop.costs_of(part));
    sum += steps.micro_batches * flop.of(part);
    blocks.push_back(std::to_string(part.blocks));
  }
  const double total = schedule::time_schedule(steps, costs).total;
  return concat("\"ideal\": ", sum / (static_cast<double>(steps.ranks.size()) * total), ", \"cut\": [", join(blocks),
                "]");
}

void run(comm::World& world, const small_llama::Numbers& a, small_llama::Words& words) {
  using layout::Axis;
  const std::int64_t count = a.at("--micro_batches"), rows = a.at("--B") / count;
  TESSERA_CHECK(rows * count == a.at("--B"), "--B ", a.at("--B"), " does not divide by --micro_batches ", count);
  const double scale = 1 / static_cast<double>(a.at("--B") * (a.at("--T") - 1));
  const int ranks = world.size();
  const comm::MeshGroups groups(world, layout::parse_mesh(concat("pp=", ranks), ranks));
  const comm::Group pipeline = groups.of(Axis::pp);

  const auto net = models::make_model(small_llama::config(a), 0);
  const schedule::Schedule steps = schedule::make_schedule(
      words["--schedule"], {.ranks = ranks, .stages_per_rank = 0, .micro_batches = static_cast<int>(count)});
  const Flop flop(a);
  const auto parts = cut(a, words["--layout"], flop, steps.stages());
  std::vector<layout::StagePart> own;
  for (const int stage : schedule::stages_of(steps, pipeline.rank()))
    own.push_back(parts[static_cast<std::size_t>(stage)]);
  if (ranks > 1) net->keep_stages(own);

  Sharded engine(*net,
                 {.strategy = "ddp", .group = groups.over({Axis::dp_replicate, Axis::dp_shard}), .stages = pipeline});
  const auto optimizer = optim::make_adamw(engine.slots(), {});
  std::vector<data::Batch> batches(static_cast<std::size_t>(count));
  parallel::PipelineOptions options{.group = pipeline};
  for (const int stage : schedule::stages_of(steps, pipeline.rank()))
    options.stages[stage].forward = [&, part = parts[static_cast<std::size_t>(stage)]](int i, const at::Tensor& input) {
      return net->run_stage(batches[static_cast<std::size_t>(i)], part, input, scale);
    };
  options.sizes = [&](int) { return std::vector{rows, a.at("--T"), a.at("--d")}; };
  parallel::PipelineExecutor executor(std::move(options));

  const auto through_stages = [&] {
    const nn::AccumulateInPlace in_place;  // as `tessera train`
    double loss = 0;
    for (const at::Tensor& part : executor.run(steps)) loss += part.item<double>();
    const at::Tensor shared = at::full({1}, loss, at::kDouble);
    pipeline.broadcast(shared, steps.rank_of.back()).wait();
    return shared.item<double>();
  };
  const auto whole = [&] {
    const nn::AccumulateInPlace in_place;
    double sum = 0;
    for (const data::Batch& batch : batches) {
      const at::Tensor loss = net->loss(batch, scale);
      loss.backward();
      sum += loss.item<double>();
    }
    return sum;
  };
  small_llama::measure_training(
      world, a,
      [&](const at::Tensor& ids) {
        for (std::int64_t i = 0; i < count; ++i) {
          data::Batch& batch = batches[static_cast<std::size_t>(i)];
          batch.ids = batch.labels = ids.narrow(0, i * rows, rows);
        }
        engine.zero_grad();
        double loss = 0;
        {
          const Sharded::WholeBatch together(engine);
          loss = ranks > 1 ? through_stages() : whole();
        }
        engine.reduce();
        optimizer->step(3e-4);
        return loss;
      },
      ranks > 1 ? about(steps, parts, flop) : "");
}

}  // namespace

int main(int argc, char** argv) {
  small_llama::Numbers a{{"--steps", 6}, {"--layers", 4},          {"--d", 512},      {"--heads", 8},
                         {"--kv", 8},    {"--intermediate", 1408}, {"--vocab", 8192}, {"--T", 256},
                         {"--B", 8},     {"--micro_batches", 8}};
  small_llama::Words words{{"--schedule", "1f1b"}, {"--layout", ""}};
  if (!small_llama::read_options(argc, argv, a, &words)) return 2;
  nn::keep_memory();
  run(tessera::init(), a, words);
  tessera::shutdown();
}
