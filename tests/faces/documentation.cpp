// The C++ of README and docs/, compiled: tools/docs/snippets.py looks up each block of those pages here or in examples/
// (ignoring comments and white space), so that no page shows code that does not compile. Nothing here runs;
// examples_test.cpp runs the examples. When a block changes in a page, change it here, too.

#include <tessera/comm/mesh_groups.h>
#include <tessera/faces.h>
#include <tessera/models/load.h>
#include <tessera/parallel/context/batch.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/tessera.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <vector>

#pragma GCC diagnostic ignored "-Wreturn-type"  // README's main() has no return statement because main() implies one
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

namespace tessera::documentation {

using layout::Axis;
using torch::nn::Linear, torch::nn::ReLU;

struct MyConfig {};
struct MyTransformerImpl : torch::nn::Module {
  explicit MyTransformerImpl(const MyConfig&) {}
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(MyTransformer);
struct MyModelImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(MyModel);

struct Rows {
  at::Tensor x, y;
};
std::vector<Rows> batches(int, int) { return {}; }
at::Tensor loss(const at::Tensor& output, const at::Tensor&) { return output; }

namespace first_program {
int main() {
  tessera::init();
  MyModel net;
  tessera::Ddp ddp(*net);
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  for (auto& batch : batches(tessera::world().rank(), tessera::world().size())) {
    optimizer.zero_grad();
    loss(net->forward(batch.x), batch.y).backward();
    optimizer.step();
  }
}
}  // namespace first_program

void readme_sharded(const MyConfig& config) {
  using MyTransformer = MyTransformerImpl;
  auto net = tessera::deferred<MyTransformer>(config);
  tessera::Sharded fsdp(*net, {.strategy = "full_shard", .wrap = tessera::by_class({"MyBlock"})});
  torch::optim::AdamW optimizer(fsdp.parameters(), 3e-4);
}

void readme_faces(std::shared_ptr<MyModelImpl> model, torch::optim::AdamW& adamw, const DataLoader& data,
                  Accelerator& accelerator, const TrainingArguments& arguments, const LossFunction& loss,
                  const RowSource& rows) {
  auto engine = tessera::initialize(model, {.config = "ds.json"});
  auto [net, optimizer, loader] = accelerator.prepare(model, adamw, data);
  tessera::Trainer trainer({.model = model, .arguments = arguments, .loss = loss, .train_dataset = rows});
  tessera::DataParallel replicas(model, {.replicas = 2});
}

void sharding(const MyConfig& config, std::vector<Rows> loader) {
  tessera::init();
  auto net = tessera::deferred<MyTransformerImpl>(config);
  tessera::Sharded fsdp(*net, {.strategy = "full_shard", .wrap = tessera::by_class({"MyBlock"})});
  torch::optim::AdamW optimizer(fsdp.parameters(), 3e-4);
  for (auto& batch : loader) {
    fsdp.zero_grad();
    loss(net->forward(batch.x), batch.y).backward();
    fsdp.clip_grad_norm(1.0);
    optimizer.step();
  }
}

void communication(comm::World& world, at::Tensor x) {
  const comm::MeshGroups groups(world, layout::parse_mesh("dp=2,tp=2"));
  groups.of(Axis::tp).all_reduce(x).wait();
  groups.over({Axis::dp_shard, Axis::cp});
}

void load_models(const at::Tensor& ids, const at::Tensor& attention_mask, const at::Tensor& token_type_ids) {
  auto model = tessera::models::load_language_folder("DIR");
  at::Tensor logits = model->forward(ids);
  at::Tensor masked = model->forward(ids, attention_mask, token_type_ids);
}

void tensor_parallel(comm::World& world, const MyConfig& config, int heads) {
  MyTransformer net(config);
  const auto mesh = layout::parse_mesh("dp=2,tp=2", world.size());
  using enum TensorStyle;
  TensorParallel tensor(*net, {.group = comm::mesh_group(world, mesh, std::vector{Axis::tp}),
                               .plan = {{"qkv", colwise, 3, heads},
                                        {"up", colwise},
                                        {"out|down", rowwise},
                                        {"token|place", embedding_rowwise},
                                        {"norm*", sequence_parallel},
                                        {"head", colwise_gather_output}},
                               .sequence_parallel = true});
  Sharded engine(*net, {.strategy = "full_shard", .group = comm::mesh_group(world, mesh, std::vector{Axis::dp_shard})});
}

void context_parallel(comm::World& world, std::shared_ptr<models::LanguageModel> model, const data::Batch& batch,
                      double scored_tokens_of_all_ranks) {
  const auto mesh = layout::parse_mesh("dp=2,cp=2", world.size());
  const auto groups = tessera::context_groups(world, mesh, tessera::ContextMethod::p2p);
  model->set_attention(tessera::context_attention_function(groups));
  tessera::Sharded fsdp(*model, {.group = comm::MeshGroups(world, mesh).over({Axis::dp_shard, Axis::cp}),
                                 .reduction = comm::Reduction::sum});
  const data::Batch mine = tessera::cut_batch(batch, groups, model->objective());
  model->loss(mine, 1.0 / scored_tokens_of_all_ranks).backward();
}

void pipeline(const comm::MeshGroups& groups, std::vector<Rows> loader,
              at::Tensor (*cross_entropy)(const at::Tensor&, const at::Tensor&)) {
  torch::nn::Sequential net(Linear(784, 512), ReLU(), Linear(512, 512), ReLU(), Linear(512, 10));
  auto pipe = tessera::pipeline(*net, {.group = groups.of(Axis::pp),
                                       .schedule = "zbv",
                                       .micro_batches = 8,
                                       .cut = tessera::PipelineCut::by_parameters(),
                                       .loss = cross_entropy});
  torch::optim::AdamW optimizer(net->parameters(), 3e-4);
  for (auto& batch : loader) {
    optimizer.zero_grad();
    const double loss = pipe.train_batch(batch.x, batch.y);
    pipe.clip_grad_norm(1.0);
    optimizer.step();
  }
}

}  // namespace tessera::documentation
