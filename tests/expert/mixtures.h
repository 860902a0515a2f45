#pragma once
/// \file
/// Small mixtures of experts, and their training in one process with the same passes, which any grid must reproduce.

#include <tessera/config/sections/model_config.h>
#include <tessera/models/load.h>
#include <tessera/parallel/expert/experts.h>
#include <tests/paths.h>
#include <tests/tensor/families.h>

namespace tessera::testing {

struct Mixture {
  std::string name;  ///< a folder of tests/fixtures/llama
  double capacity = 0;
  nn::DropBy drop = nn::DropBy::probability;
  int steps = 2;
  double auxiliary = 0.1;  ///< factor of the balancing loss of each pass
  at::ScalarType dtype = at::kDouble;
};

struct MixtureRun : Run {
  std::map<std::int64_t, at::Tensor> load;  ///< load summed over all steps, by block
  std::int64_t dropped = 0;
};

struct Grid {
  std::string mesh;  ///< all axes, including etp
  bool sequence_parallel = false;
  std::string strategy = "ddp";
};

inline std::shared_ptr<models::LanguageModel> load_mixture(const Mixture& mixture) {
  ModelConfig config;
  config.model_name_or_path = source_path("tests/fixtures/llama/" + mixture.name);
  std::shared_ptr<models::LanguageModel> model = models::load_model(config, 0);
  model->to(mixture.dtype);
  model->train();
  models::BalanceOptions balance = model->balance();
  balance.capacity = {mixture.capacity, mixture.drop};
  balance.form = models::BalanceOptions::Form::micro_batch;
  balance.auxiliary = mixture.auxiliary;
  model->set_balance(balance);
  return model;
}

inline void note_routers(MixtureRun& run, models::LanguageModel& model) {
  const models::RouterStatistics routers = model.take_router_statistics();
  run.dropped += routers.dropped;
  for (const auto& [block, load] : routers.load)
    run.load[block] = run.load.contains(block) ? run.load[block] + load : load;
}

/// One process; a step's rows are divided into `passes` passes.
inline MixtureRun mixture_alone(const Mixture& mixture, int passes) {
  const auto model = load_mixture(mixture);
  model->set_auxiliary_scale(1.0 / passes);
  MixtureRun run;
  for (int step = 0; step < mixture.steps; ++step) {
    model->zero_grad();
    const double scale = 1.0 / static_cast<double>(scored(batch_of(*model, step, 0, batch_rows), *model));
    double sum = 0;
    for (int pass = 0; pass < passes; ++pass) {
      const std::int64_t rows = batch_rows / passes;
      const at::Tensor loss = model->loss(batch_of(*model, step, pass * rows, rows), scale);
      loss.backward();
      sum += loss.item<double>();
    }
    note_routers(run, *model);
    run.losses.push_back(sum);
    std::vector<at::Tensor> gradients;
    for (const auto& p : model->named_parameters()) {
      if (!p.value().requires_grad()) continue;
      gradients.push_back(p.value().grad());
      if (step == 0) run.gradients[p.key()] = p.value().grad().clone();
    }
    run.norms.push_back(optim::gradient_norm(gradients));
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : model->parameters())
      if (p.requires_grad()) at::Tensor(p).sub_(p.grad(), rate);
  }
  for (const auto& p : model->named_parameters()) run.weights[p.key()] = p.value().detach().clone();
  return run;
}

/// The same on a grid; each data-parallel rank makes one pass of a step. Returns gradients and weights of this rank's
/// parameters.
inline MixtureRun mixture_on_grid(comm::World& world, const Mixture& mixture, const Grid& grid) {
  using layout::Axis;
  const layout::Mesh mesh = layout::parse_mesh(grid.mesh, world.size());
  const comm::MeshGroups groups(world, mesh);
  const comm::Group tensor = groups.of(Axis::tp), data = groups.of(Axis::dp_shard), engine = groups.of(Axis::edp);
  const ExpertRanks places{groups.over({Axis::ep, Axis::etp}), mesh.etp, tensor};
  const comm::Group beside = world.split(layout::groups_beside_experts(mesh, false), "ep gradients");
  const auto model = load_mixture(mixture);
  model->set_auxiliary_scale(1.0 / data.size());
  if (grid.sequence_parallel) {
    models::BalanceOptions balance = model->balance();
    balance.sum_tokens = [tensor](const at::Tensor& numbers) {
      at::Tensor all = numbers.clone();
      tensor.all_reduce(all).wait();
      return all;
    };
    balance.tokens_of_rows = {[tensor](const at::Tensor& numbers) {
                                auto sizes = numbers.sizes().vec();
                                sizes.at(0) *= tensor.size();
                                const at::Tensor all = at::empty(sizes, numbers.options());
                                tensor.all_gather(all, numbers.contiguous()).wait();
                                return all;
                              },
                              tensor.rank()};
    model->set_balance(balance);
  }
  const std::int64_t experts = model->balance().experts;
  const layout::Range held = held_experts(experts, places);
  model->keep_experts(held.begin, held.end - held.begin);
  model->set_experts(expert_parallel(places));
  const auto expert_of = [&](const std::string& name) { return model->expert_of(name); };
  std::map<std::string, at::Tensor> own;
  std::vector<std::string> names, dense;
  for (const auto& p : model->named_parameters()) {
    own[p.key()] = p.value();
    names.push_back(p.key());
    if (!expert_of(p.key())) dense.push_back(p.key());
  }
  std::optional<TensorParallel> parts;
  if (tensor.size() > 1)
    parts.emplace(*model,
                  TensorParallelOptions{.group = tensor,
                                        .plan = place_experts(model->tensor_plan(), names, expert_of, experts, places),
                                        .sequence_parallel = grid.sequence_parallel});
  ShardingOptions options{.strategy = grid.strategy, .group = engine, .reduction = comm::Reduction::sum};
  options.shared_by_experts = {beside, [&](const std::string& name) { return !expert_of(name); }};
  if (beside.size() > 1) options.stages = beside;
  if (beside.rank() > 0) options.held_by_earlier_stage = dense;
  Sharded sharded(*model, options);
  MixtureRun run;
  const std::int64_t rows = batch_rows / data.size();
  for (int step = 0; step < mixture.steps; ++step) {
    sharded.zero_grad();
    const double scale = 1.0 / static_cast<double>(scored(batch_of(*model, step, 0, batch_rows), *model));
    const at::Tensor loss = model->loss(batch_of(*model, step, data.rank() * rows, rows), scale);
    loss.backward();
    at::Tensor shared = at::full({1}, loss.item<double>(), at::kDouble);
    data.all_reduce(shared).wait();
    run.losses.push_back(shared.item<double>());
    note_routers(run, *model);
    run.norms.push_back(sharded.grad_norm());
    if (step == 0)
      for (const ShardedParameter& p : sharded.named_parameters()) {
        const at::Tensor part = sharded.gather_like(p, p.local.grad()).view(p.shape);
        run.gradients[p.name] = gather_tensor_parts(own.at(p.name), part);
      }
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : sharded.parameters()) at::Tensor(p).sub_(p.grad(), rate);
  }
  sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
    run.weights[name] = gather_tensor_parts(own.at(name), value).clone();
  });
  sharded.check_replicas();
  for (auto& [block, load] : run.load) data.all_reduce(load).wait();
  at::Tensor dropped = at::full({1}, run.dropped, at::kLong);
  (grid.sequence_parallel ? world.group() : data).all_reduce(dropped).wait();
  run.dropped = dropped.item<std::int64_t>();
  return run;
}

/// Compares this rank's part of a grid's `run` with the run of one process.
inline void expect_same_mixture(const MixtureRun& run, const MixtureRun& wanted, double of, const std::string& what) {
  MixtureRun here = wanted;
  std::erase_if(here.gradients, [&](const auto& item) { return !run.gradients.contains(item.first); });
  std::erase_if(here.weights, [&](const auto& item) { return !run.weights.contains(item.first); });
  ASSERT_GT(here.gradients.size(), 0u) << what;
  expect_same(run, here, of, what);
  EXPECT_EQ(run.dropped, wanted.dropped) << what;
  ASSERT_EQ(run.load.size(), wanted.load.size()) << what;
  for (const auto& [block, load] : wanted.load) EXPECT_TRUE(at::equal(run.load.at(block), load)) << what;
}

}  // namespace tessera::testing
