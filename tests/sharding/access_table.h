#pragma once
/// \file
/// The ways in which a torch::nn program accesses parameters and gradients. Each is a small program that runs on one
/// process and, unchanged, on the ranks of a job. The table is in docs/sharding.md.

#include <tests/distributed/ddp_models.h>

#include <torch/nn/cloneable.h>
#include <torch/optim/sgd.h>

#include <tessera/base/error.h>
#include <tessera/comm/world.h>
#include <tessera/parallel/fully_shard.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::testing {

/// x [B, 12] -> [B, 5].
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  torch::nn::Linear first{nullptr}, second{nullptr};
  at::Tensor scale;
  std::function<at::Tensor(const at::Tensor&)> in_forward = [](const at::Tensor& h) { return h; };
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(12, 8));
    second = register_module("second", torch::nn::Linear(8, 5));
    scale = register_parameter("scale", at::ones({5}));
  }
  at::Tensor forward(const at::Tensor& x) { return second->forward(in_forward(at::tanh(first->forward(x)))) * scale; }
};

/// One process (without a world), or one rank of a job.
struct Run {
  comm::World* world = nullptr;
  std::string strategy = {};
  std::shared_ptr<NetImpl> net = std::make_shared<NetImpl>();
  std::unique_ptr<Sharded> sharded = {};
  std::vector<at::Tensor> notes = {};  ///< whole tensors to compare in addition to the weights

  std::unique_ptr<Sharded> wrapper(torch::nn::Module& module, const std::function<void(ShardingOptions&)>& edit = {}) {
    if (world == nullptr) return nullptr;
    ShardingOptions options{.strategy = strategy, .wrap = by_class({"Linear"})};
    if (edit) edit(options);
    return std::make_unique<Sharded>(module, options);
  }
  void wrap(const std::function<void(ShardingOptions&)>& edit = {}) { sharded = wrapper(*net, edit); }

  /// Tied parameters once. (LibTorch's own parameters() lists them twice, so an optimizer steps them twice.)
  static std::vector<at::Tensor> parameters_of(const std::unique_ptr<Sharded>& wrapper, torch::nn::Module& module) {
    if (wrapper) return wrapper->parameters();
    std::vector<at::Tensor> result;
    for (const at::Tensor& p : module.parameters())
      if (std::none_of(result.begin(), result.end(), [&](const at::Tensor& q) { return q.is_same(p); }))
        result.push_back(p);
    return result;
  }
  std::vector<at::Tensor> parameters() { return parameters_of(sharded, *net); }
  /// Gathers a tensor that is laid out like parameter i.
  at::Tensor whole(std::size_t i, const at::Tensor& local) {
    return sharded ? sharded->gather_like(sharded->named_parameters()[i], local).clone() : local.clone();
  }
  /// This process's part of a step's batch.
  Batch batch(int step) const {
    const Batch all = global_batch(step, 12);
    return world == nullptr ? all : part(all, world->rank(), world->size());
  }
  at::Tensor loss(int step) {
    const Batch mine = batch(step);
    return (net->forward(mine.x) - mine.y).square().mean();
  }
  std::map<std::string, at::Tensor> weights() {
    std::map<std::string, at::Tensor> result;
    if (sharded)
      sharded->visit_parameters([&](const std::string& name, const at::Tensor& v) { result[name] = v.clone(); });
    else
      for (const auto& p : net->named_parameters()) result[p.key()] = p.value().detach().clone();
    return result;
  }
};

/// Three steps: zero, backward, `between`, step.
template <class Optimizer, class Between>
void train(Run& run, Optimizer& optimizer, Between&& between, int first_step = 0) {
  for (int step = first_step; step < first_step + 3; ++step) {
    optimizer.zero_grad();
    run.loss(step).backward();
    between(step);
    optimizer.step();
  }
}
template <class Optimizer>
void train(Run& run, Optimizer& optimizer) {
  train(run, optimizer, [](int) {});
}

/// A row of the table. `refusal`: expected error text. `sharded_refusal`: expected instead under strategies that divide
/// something. Without either, weights and notes must equal those of one process.
struct Access {
  const char* name;
  std::function<void(Run&)> program;
  std::string refusal = {};
  std::string sharded_refusal = {};
};

const std::vector<Access>& accesses_by_optimizers();  ///< optimizers, zeroing, clipping, grad()
const std::vector<Access>& accesses_by_modules();     ///< modules, values, hooks, late registration, sharing
const std::vector<Access>& accesses_in_loops();       ///< whole programs

}  // namespace tessera::testing
