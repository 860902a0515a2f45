/// \file
/// tessera test: a short self-check with real processes. The agent starts the ranks; each rank checks the collectives,
/// then that a data-parallel step equals the same step of one process.

#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>

#include <tessera/base/error.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/launch/agent/launcher.h>
#include <tessera/models/load.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
#include <tessera/train/loop/setup.h>

#include "tool.h"

namespace tessera::tool {
namespace {

constexpr std::int64_t elements = 1000;

void check_collectives(const comm::Group& group) {
  const int size = group.size(), rank = group.rank();
  const auto expect = [&](const char* what, const at::Tensor& found, const at::Tensor& expected) {
    if (!at::equal(found, expected))
      throw Error(concat(what, " over ", size, " ranks gave a wrong result on rank ", rank));
  };
  const at::Tensor base = at::arange(elements, at::kFloat);
  at::Tensor sum = base + rank;
  group.all_reduce(sum).wait();
  expect("all_reduce", sum, base * size + size * (size - 1) / 2);
  at::Tensor word = rank == 0 ? base.clone() : at::zeros({elements});
  group.broadcast(word, 0).wait();
  expect("broadcast", word, base);
  at::Tensor all = at::empty({size});
  group.all_gather(all, at::full({1}, static_cast<float>(rank))).wait();
  expect("all_gather", all, at::arange(size, at::kFloat));
  at::Tensor mine = at::empty({1});
  group.reduce_scatter(mine, at::arange(size, at::kFloat)).wait();
  expect("reduce_scatter", mine, at::full({1}, static_cast<float>(rank * size)));
}

/// Compares the gradient norm of one batch, computed once with one row on each of `size` processes and once with all
/// rows in this process.
void check_training(const comm::Group& group) {
  Value config = models::preset("gpt2-tiny");
  for (const auto& [key, value] :
       {std::pair{"n_layer", 2}, {"n_embd", 32}, {"n_head", 2}, {"vocab_size", 64}, {"n_positions", 32}})
    config.set(key, Value::of(value));
  config.set("bos_token_id", Value::of(0));
  config.set("eos_token_id", Value::of(0));
  const at::Tensor ids = at::arange(group.size() * 32, at::kLong).view({group.size(), 32}).mul(7).remainder(64);
  const double scale = 1.0 / (31.0 * group.size());
  const auto gradient_norm = [&](models::CausalLm& model) {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : model.parameters()) gradients.push_back(parameter.grad());
    return optim::gradient_norm(gradients);
  };

  const auto alone = models::make_model(config, 1);
  alone->loss(ids, ids, scale).backward();
  const auto together = models::make_model(config, 1);
  DdpOptions options;
  options.group = group;
  options.reduction = comm::Reduction::sum;
  Ddp ddp(*together, options);
  const at::Tensor own = ids.narrow(0, group.rank(), 1);
  together->loss(own, own, scale).backward();
  const double expected = gradient_norm(*alone), found = gradient_norm(*together);
  if (!(std::abs(found - expected) <= 1e-5 * expected))
    throw Error(
        concat("the gradient norm of ", group.size(), " processes is ", found, ", that of one process ", expected));
  ddp.check_replicas();
}

}  // namespace

int self_test(const Arguments& given) {
  Arguments arguments = given;
  const launch::RankEnvironment environment = launch::read_rank_environment(&arguments);
  const Flags flags("test", arguments, {"num_processes", "backend"}, {"help"});
  if (flags.has("help")) {
    std::puts(
        "tessera test [--num_processes N] [--backend B]: checks collectives and a data-parallel step with N processes "
        "(default 2).");
    return 0;
  }
  const std::int64_t processes = flags.integer("num_processes", 2);
  if (processes < 1 || processes > 4096)
    throw InputError(concat("--num_processes is ", processes, ", must be 1..4096"));
  if (environment.launcher == "none" && processes > 1) {
    std::vector<std::string> command = {"/proc/self/exe", "test"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    launch::LaunchOptions options;
    options.num_processes = static_cast<int>(processes);
    return launch::run(command, options);
  }
  InitOptions options;
  options.backend = flags.text("backend").value_or("auto");
  comm::World& world = init(environment, options);
  comm::run_on_all_ranks(world.group(), [&] { check_collectives(world.group()); });
  comm::run_on_all_ranks(world.group(), [&] { check_training(world.group()); });
  if (world.rank() == 0)
    std::printf("%d %s, backend %s: collectives and a data-parallel step are correct.\n", world.size(),
                world.size() == 1 ? "process" : "processes", world.group().backend().c_str());
  std::fflush(stdout);
  shutdown();
  return 0;
}

}  // namespace tessera::tool
