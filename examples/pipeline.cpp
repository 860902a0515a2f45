// A third-party transformer as a pipeline: its layers are listed in order, and the loop is an ordinary one. With more
// ranks than --pp, the rest divide the data and, with --strategy=full_shard, the parameters of every stage.
//
//   tessera launch --num_processes 2 build/examples/pipeline --schedule=zbv
//   tessera launch --num_processes 4 build/examples/pipeline --pp=2 --strategy=full_shard
//   build/examples/pipeline --pp=1                                  (alone: the same losses)

#include "run_main.h"
#include "user_module.h"

#include <tessera/comm/mesh_groups.h>
#include <tessera/tessera.h>

#include <torch/optim/adamw.h>

#include <cstdio>

/// Sequences in which every token follows from the previous one: ids int64 [rows, 17].
static at::Tensor sequences(std::int64_t rows, std::int64_t vocabulary) {
  at::Tensor token = at::randint(vocabulary, {rows}, at::kLong);
  std::vector<at::Tensor> ids;
  for (int i = 0; i < 17; ++i, token = (token * 5 + 3).remainder(vocabulary)) ids.push_back(token);
  return at::stack(ids, 1);
}

/// MyTransformer::forward() as a chain. Activations are [T, B, C] between the layers.
static std::vector<tessera::PipelineLayer> layers_of(MyTransformer net) {
  std::vector<tessera::PipelineLayer> layers;
  layers.push_back({"embeddings",
                    [net](const at::Tensor& ids) mutable {
                      return (net->token(ids) + net->place(at::arange(ids.size(1), ids.options()))).transpose(0, 1);
                    },
                    {"token", "place"}});
  for (std::size_t i = 0; i < net->blocks->size(); ++i)
    layers.push_back({"blocks." + std::to_string(i), [net, i](const at::Tensor& x) {
                        const float none = -std::numeric_limits<float>::infinity();
                        return net->blocks->ptr<MyBlockImpl>(i)->forward(
                            x, at::full({x.size(0), x.size(0)}, none, x.options().requires_grad(false)).triu(1));
                      }});
  layers.push_back({"head",
                    [net](const at::Tensor& x) mutable { return net->head(net->norm(x)).transpose(0, 1); },
                    {"norm", "head"}});
  return layers;
}

static void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto environment = tessera::launch::read_rank_environment(&arguments);
  std::string strategy = "ddp", schedule = "1f1b", ranks = "2";
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--strategy="))
      strategy = argument.substr(11);
    else if (argument.starts_with("--schedule="))
      schedule = argument.substr(11);
    else if (argument.starts_with("--pp="))
      ranks = argument.substr(5);
    else
      throw tessera::InputError("pipeline: unknown argument '" + argument + "'");
  }

  using tessera::layout::Axis;
  tessera::comm::World& world = tessera::init(environment, {});
  const tessera::comm::MeshGroups groups(world, tessera::layout::parse_mesh("pp=" + ranks + ",dp=-1", world.size()));
  const auto data = groups.of(Axis::dp_shard);

  at::manual_seed(1);  // all ranks create the same values, and each keeps its layers
  const MyConfig config;
  MyTransformer net(config);
  const auto loss = [](const at::Tensor& logits, const at::Tensor& ids) {
    return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), ids.reshape({-1}));
  };
  auto pipe = tessera::pipeline(*net, layers_of(net),
                                {.group = groups.of(Axis::pp), .schedule = schedule, .micro_batches = 4, .loss = loss});
  tessera::Sharded engine(*net, {.strategy = strategy, .group = data, .stages = groups.of(Axis::pp)});
  pipe.attach(engine);  // without other axes, use torch::optim on net->parameters() and omit attach()

  torch::optim::AdamW optimizer(engine.parameters(), 3e-3);
  at::manual_seed(1);
  for (int epoch = 0; epoch < 4; ++epoch) {
    double sum = 0;
    constexpr int batches = 12;
    for (int i = 0; i < batches; ++i) {
      const at::Tensor all = sequences(16, config.vocabulary), ids = all.tensor_split(data.size())[data.rank()];
      engine.zero_grad();
      sum += pipe.train_batch(ids.narrow(1, 0, 16), ids.narrow(1, 1, 16));
      pipe.clip_grad_norm(1.0);  // over all stages
      optimizer.step();
    }
    at::Tensor mean = at::full({1}, sum / batches, at::kDouble);
    data.all_reduce(mean, tessera::comm::Reduction::mean).wait();
    if (world.rank() == 0) std::printf("epoch %d: loss %.4f (%d ranks)\n", epoch, mean.item<double>(), world.size());
  }
  if (world.rank() == 0) std::printf("%s\n", pipe.describe().c_str());
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
