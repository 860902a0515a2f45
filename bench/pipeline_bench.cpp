/// \file Pipeline parallelism compared with one process: forward, backward and AdamW of the same Llama on the same
/// micro-batches. Prints one JSON line: tokens/s of the median step, CPU seconds of a step of all ranks, the last loss;
/// with several ranks `ideal`, the share of the ranks' time that the schedule leaves for computing if messages take no
/// time and stages cost their FLOP, and `cut`, the stages as a layout string.
///
///   OMP_NUM_THREADS=2 pipeline_bench                                    one process, two threads
///   OMP_NUM_THREADS=1 tessera launch --nproc_per_node 2 pipeline_bench  as many stages as ranks, or twice as many
///   [--steps 6 --layers 4 --d 512 --heads 8 --kv 8 --intermediate 1408 --vocab 8192 --T 256 --B 8 --micro_batches 8
///    --schedule 1f1b --layout half_blocks]
///
/// --layout: half_blocks (default), flops or a layout string, like --pipeline_layout of `tessera train`.
/// bench/pipeline.py runs both and PyTorch's torch.distributed.pipelining, round by round.

#include <bench/small_llama.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/comm/world.h>
#include <tessera/layout/schedule/cut.h>
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

/// MFLOP per token. A matrix product costs the same in all three passes. Attention (causal: half of the products) has
/// no weights, and computes its scores again in backward. The head computes its gradients in F, chunk by chunk
/// (nn/linear_cross_entropy.h); the embeddings cost almost nothing.
schedule::ChainTimes flop_of(const small_llama::Numbers& a, bool halves) {
  const auto of = [&](const char* option) { return static_cast<double>(a.at(option)); };
  const double d = of("--d"), head = d / of("--heads");
  const double products = 2e-6 * d * (2 * d + 2 * of("--kv") * head), scores = 2e-6 * of("--T") * d;
  const double mlp = 2e-6 * d * 3 * of("--intermediate");
  schedule::ChainTimes chain{.pieces = {}, .halves = halves, .end = {3 * 2e-6 * d * of("--vocab"), 0, 0}};
  const schedule::StageCosts attention{products + scores, products + 2.5 * scores, products};
  for (std::int64_t i = 0; i < a.at("--layers"); ++i) {
    if (halves) {
      chain.pieces.push_back(attention);
      chain.pieces.push_back({mlp, mlp, mlp});
    } else {
      chain.pieces.push_back(
          {attention.forward + mlp, attention.input_gradient + mlp, attention.weight_gradient + mlp});
    }
  }
  return chain;
}

std::vector<layout::StagePart> cut(const small_llama::Numbers& a, const std::string& asked,
                                   const schedule::Schedule& steps) {
  if (!layout::is_layout_word(asked)) return layout::parse_stage_layout(asked, a.at("--layers"), steps.stages());
  return schedule::cut_for_schedule(flop_of(a, asked == layout::layout_by_half_blocks), steps);
}

/// The JSON members "ideal" and "cut".
std::string about(const schedule::Schedule& steps, const std::vector<layout::StagePart>& parts,
                  const small_llama::Numbers& a) {
  const schedule::Costs costs{.stages = schedule::stage_costs(parts, flop_of(a, true))};
  double sum = 0;
  for (const schedule::StageCosts& stage : costs.stages)
    sum += steps.micro_batches * (stage.forward + stage.whole_backward());
  const double total = schedule::time_schedule(steps, costs).total;
  return concat("\"ideal\": ", sum / (static_cast<double>(steps.ranks.size()) * total), ", \"cut\": \"",
                layout::stage_layout(parts), "\"");
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
  const auto parts = cut(a, words["--layout"], steps);
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
    const nn::AccumulateInPlace in_place;  // as in `tessera train`
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
          const Sharded::AccumulateLocally together(engine);
          loss = ranks > 1 ? through_stages() : whole();
        }
        engine.reduce();
        optimizer->step(3e-4);
        return loss;
      },
      ranks > 1 ? about(steps, parts, a) : "");
}

}  // namespace

int main(int argc, char** argv) {
  small_llama::Numbers a{{"--steps", 6}, {"--layers", 4},          {"--d", 512},      {"--heads", 8},
                         {"--kv", 8},    {"--intermediate", 1408}, {"--vocab", 8192}, {"--T", 256},
                         {"--B", 8},     {"--micro_batches", 8}};
  small_llama::Words words{{"--schedule", "1f1b"}, {"--layout", "half_blocks"}};
  if (!small_llama::read_options(argc, argv, a, &words)) return 2;
  nn::keep_memory();
  run(tessera::init(), a, words);
  tessera::shutdown();
}
