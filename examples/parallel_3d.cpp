// Three dimensions: data x tensor x pipeline parallelism for a Hugging Face folder, with a Hugging Face folder as the
// result. Each rank builds and reads the weights of its own stage only, cuts them over `tp`, and reduces gradients over
// `dp`.
//
//   tessera launch --num_processes 8 build/examples/parallel_3d FOLDER OUTPUT --mesh=pp=2,dp=2,tp=2
//   build/examples/parallel_3d FOLDER OUTPUT --mesh=pp=1                    (one process: the same losses)

#include "run_main.h"

#include <tessera/base/file.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/models/load.h>
#include <tessera/models/tensor_plans.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/pipeline/executor.h>
#include <tessera/parallel/pipeline/tied_embedding.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/tessera.h>
#include <tessera/train/saving/saver.h>

#include <torch/optim/adamw.h>

#include <cstdio>
#include <optional>

namespace {

constexpr std::int64_t rows_per_step = 8, tokens_per_row = 16;
constexpr int micro_batches = 4;

/// Rows in which every token follows from the previous one: ids int64 [rows, 16], the same everywhere for a given seed.
at::Tensor rows_of_step(int step, std::int64_t vocabulary) {
  at::manual_seed(static_cast<std::uint64_t>(step));
  at::Tensor token = at::randint(vocabulary, {rows_per_step}, at::kLong);
  std::vector<at::Tensor> ids;
  for (std::int64_t i = 0; i < tokens_per_row; ++i, token = (token * 5 + 3).remainder(vocabulary)) ids.push_back(token);
  return at::stack(ids, 1);
}

void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto environment = tessera::launch::read_rank_environment(&arguments);
  std::vector<std::string> folders;
  std::string sizes = "pp=2,dp=2,tp=2", schedule_name = "zbv";
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--mesh="))
      sizes = argument.substr(7);
    else if (argument.starts_with("--schedule="))
      schedule_name = argument.substr(11);
    else if (!argument.starts_with("--") && folders.size() < 2)
      folders.push_back(argument);
    else
      throw tessera::InputError("parallel_3d: unknown argument '" + argument + "'");
  }
  if (folders.size() != 2) throw tessera::InputError("parallel_3d FOLDER OUTPUT [--mesh=pp=2,dp=2,tp=2]");

  // The mesh: every rank has a position along each axis, and a group with the ranks that differ only in that axis.
  using tessera::layout::Axis;
  tessera::comm::World& world = tessera::init(environment, {});
  const tessera::comm::MeshGroups groups(world, tessera::layout::parse_mesh(sizes, world.size()));
  const auto pipeline = groups.of(Axis::pp), data = groups.over({Axis::dp_replicate, Axis::dp_shard}),
             tensor = groups.of(Axis::tp);

  // The schedule (which rank computes which stage of which micro-batch, and when), and the places where the model is
  // cut.
  namespace schedule = tessera::layout::schedule;
  const schedule::Schedule steps = schedule::make_schedule(
      schedule_name, {.ranks = pipeline.size(), .stages_per_rank = 0, .micro_batches = micro_batches});
  tessera::ModelConfig config;
  config.model_name_or_path = folders[0];
  std::string weights_folder;
  const auto model = tessera::models::load_model_deferred(config, 1, weights_folder);
  const auto stages = tessera::layout::cut_evenly(model->shape().blocks, steps.stages());
  std::vector<tessera::layout::StagePart> own;
  for (const int stage : schedule::stages_of(steps, pipeline.rank()))
    own.push_back(stages[static_cast<std::size_t>(stage)]);
  model->keep_stages(own);
  const tessera::models::WeightSource weights(*model, weights_folder);
  tessera::models::fill_parameters(*model, &weights);  // reads nothing that belongs to other stages

  std::optional<tessera::TensorParallel> parts;
  if (tensor.size() > 1)
    parts.emplace(*model,
                  tessera::TensorParallelOptions{.group = tensor, .plan = tessera::models::tensor_plan(*model)});
  const std::string tied = model->tied_parameter();  // the embeddings, if the last stage needs them, too
  const int first = steps.rank_of.front(), last = steps.rank_of.back();
  std::vector<std::string> held;
  if (!tied.empty() && pipeline.rank() == last && first != last) held.push_back(tied);
  tessera::Sharded engine(*model, {.strategy = tessera::Strategy::full_shard,
                                   .group = data,
                                   .wrap = tessera::by_size(20'000),
                                   .reduction = tessera::comm::Reduction::sum,
                                   .stages = pipeline,
                                   .held_by_earlier_stage = held});
  torch::optim::AdamW optimizer(engine.parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0));

  // The executor calls the stages of this rank, and sends activations and their gradients.
  std::vector<tessera::data::Batch> batches(micro_batches);
  tessera::parallel::PipelineOptions options{.group = pipeline};
  for (const int stage : schedule::stages_of(steps, pipeline.rank()))
    options.stages[stage].forward = [&, stage](int micro_batch, const at::Tensor& input) {
      return model->run_stage(batches[static_cast<std::size_t>(micro_batch)], stages[static_cast<std::size_t>(stage)],
                              input, 1.0 / (rows_per_step * (tokens_per_row - 1)));
    };
  tessera::parallel::PipelineExecutor executor(std::move(options));

  model->train();
  for (int step = 0; step < 10; ++step) {
    const at::Tensor ids = rows_of_step(step, std::min<std::int64_t>(model->vocab_size(), 97));
    const std::int64_t rows = rows_per_step / data.size() / micro_batches;
    TESSERA_CHECK(rows > 0, "8 rows cannot be divided evenly among ", data.size(),
                  " data-parallel ranks and 4 micro-batches");
    for (int i = 0; i < micro_batches; ++i) {
      auto& batch = batches[static_cast<std::size_t>(i)];
      batch.ids = batch.labels = ids.narrow(0, (i * data.size() + data.rank()) * rows, rows).contiguous();
    }
    engine.zero_grad();
    at::Tensor loss = at::zeros({1});
    {
      const tessera::Sharded::AccumulateLocally together(engine);
      for (const at::Tensor& part : executor.run(steps)) loss += part;
    }
    engine.reduce();
    tessera::parallel::add_tied_gradients(engine, tied, pipeline, first, last);
    const double norm = engine.clip_grad_norm(1.0);  // over all stages, parts and shards; each is counted once
    optimizer.step();
    data.all_reduce(loss).wait();
    pipeline.broadcast(loss, last).wait();
    if (world.rank() == 0)
      std::printf("step %d: loss %.6f, gradient norm %.6f (%d ranks)\n", step, loss.item<double>(), norm, world.size());
  }

  // Writes a folder that transformers can open: the first rank of each stage writes its stage's part.
  tessera::train::SaveContents contents{.step = 10,
                                        .form = {.optimizer = false, .full = true},
                                        .folder = folders[1],
                                        .small_files = [&](const std::string& folder) {
                                          tessera::write_file_atomically(
                                              tessera::path_join(folder, "config.json"),
                                              tessera::dump_json(model->hf_config(), 2) + "\n");
                                          return std::vector<tessera::format::ManifestFile>();
                                        }};
  tessera::train::save_now(world.group(), {{.sharded = &engine}}, std::move(contents));
  if (world.rank() == 0) std::printf("saved %s\n", folders[1].c_str());
  tessera::shutdown();
}

}  // namespace

int main(int argc, char** argv) { return run_main(example, argc, argv); }
