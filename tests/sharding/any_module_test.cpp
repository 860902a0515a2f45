// Modules of every kind, in every mode, give the bits of one process.
#include <tests/sharding/job.h>

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/transformer.h>

#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>

#include <thread>

namespace {

using namespace tessera;
using namespace tessera::testing;

/// Two tensors in, three out.
struct Pairs : Model {
  torch::nn::Linear left{12, 8}, right{12, 8}, both{16, 5};
  Pairs() {
    register_module("left", left);
    register_module("right", right);
    register_module("both", both);
  }
  std::tuple<at::Tensor, at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor l = at::tanh(left->forward(a)), r = at::tanh(right->forward(b));
    return {both->forward(at::cat({l, r}, 1)), l, {r, l * r}};
  }
  at::Tensor forward(at::Tensor x) override {
    const auto [y, l, more] = forward(x, x.flip(1));
    return y + l.sum(1, true) * 0.1 + more[1].sum(1, true) * 0.1;
  }
};

struct ConvBatchNorm : Model {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3).padding(1)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear head{48, 5};
  ConvBatchNorm() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
    norm->eval();  // in training mode its batch would differ between the ranks and one process
  }
  void train(bool) override {}
  at::Tensor forward(at::Tensor x) override {
    return head->forward(at::relu(norm->forward(conv->forward(x.view({-1, 1, 3, 4})))).flatten(1));
  }
};

struct WholeTransformer : Model {
  torch::nn::Transformer net{torch::nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(8).dropout(0.0)};
  torch::nn::Linear head{4, 5};
  WholeTransformer() {
    register_module("net", net);
    register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor s = x.view({-1, 3, 4}).transpose(0, 1);
    return head->forward(net->forward(s, s * 0.5).mean(0));
  }
};

struct Bags : Model {
  torch::nn::EmbeddingBag bag{torch::nn::EmbeddingBagOptions(10, 6).mode(torch::kSum)};
  torch::nn::Bilinear mix{torch::nn::BilinearOptions(6, 12, 5)};
  Bags() {
    register_module("bag", bag);
    register_module("mix", mix);
  }
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor ids = (x.narrow(1, 0, 3).detach().to(at::kDouble) * 3).floor().to(at::kLong).remainder(10);
    return mix->forward(bag->forward(ids), x);
  }
};

struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return x.matmul(w).pow(3);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor inner = grads[0] * 3 * saved[0].matmul(saved[1]).pow(2);
    return {inner.matmul(saved[1].t()), saved[0].t().matmul(inner)};
  }
};
struct CustomFunction : Model {
  at::Tensor w;
  torch::nn::Linear head{6, 5};
  CustomFunction() {
    w = register_parameter("w", at::randn({12, 6}) * 0.2);
    register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) override { return head->forward(Cube::apply(x, w)); }
};

/// Three levels of nested modules that read parameters in many ways.
struct DeepImpl : torch::nn::Module {
  torch::nn::Linear inner{12, 12};
  DeepImpl() { register_module("inner", inner); }
  at::Tensor forward(const at::Tensor& x) { return at::tanh(inner->forward(x)); }
};
TORCH_MODULE(Deep);
struct Mixed : Model {
  torch::nn::Sequential deep{torch::nn::Linear(12, 12), Deep(),
                             torch::nn::LayerNorm(torch::nn::LayerNormOptions({12}))};
  at::Tensor scalar, table;
  Mixed() {
    register_module("deep", deep);
    scalar = register_parameter("scalar", at::full({}, 0.5));
    table = register_parameter("table", at::randn({5, 12}) * 0.3);
  }
  at::Tensor forward(at::Tensor x) override {
    x = deep->forward(x) * scalar + x;
    x = at::einsum("bi,oi->bo", {x, table});
    return x + table.index({0}).sum() + table.detach().abs().max() * scalar;
  }
};

template <class M>
Task task_of(const char* name, std::vector<std::string> units) {
  return {name, make_vectors<M>, std::move(units)};
}

const std::vector<Task>& kinds() {
  static const std::vector<Task> all = {
      task_of<Pairs>("several tensors", {"Linear"}),
      task_of<SharedModel>("used twice", {"Linear"}),
      task_of<ConvModel>("convolution", {"Conv2d", "Linear"}),
      task_of<ConvBatchNorm>("batch norm", {"Conv2d", "BatchNorm2d"}),
      task_of<SequenceModel>("LSTM", {"LSTM", "MultiheadAttention"}),
      task_of<WholeTransformer>("transformer", {"TransformerEncoderLayer", "TransformerDecoderLayer"}),
      task_of<Bags>("embedding bag", {"EmbeddingBag", "Bilinear"}),
      task_of<CustomFunction>("custom function", {"Linear"}),
      task_of<Mixed>("mixed", {"Linear", "LayerNorm"}),
  };
  return all;
}

TEST(AnyModule, of_every_kind_has_the_bits_of_one_process) {
  constexpr int few = 5;
  for (const int ranks : {1, 2, 3}) {
    std::vector<Record> expected;
    for (const Task& t : kinds()) expected.push_back(train_alone(t, Rule::adamw, ranks, few));
    run_ranks(
        ranks,
        [&](comm::World& world) {
          for (std::size_t i = 0; i < kinds().size(); ++i)
            for (const char* strategy : {"full_shard", "zero1"}) {
              const ShardingOptions options{.strategy = strategy,
                                            .wrap = by_class(kinds()[i].units),
                                            .logical_shards = ranks,
                                            .reshard_root = i % 2 == 0,
                                            .reshard_alone = true};
              expect_same_bits(world, train_job(world, kinds()[i], options, {.rule = Rule::adamw, .steps = few}),
                               expected[i], concat(kinds()[i].name, ", ", strategy));
            }
        },
        60);
  }
}

/// Trains a pair: the module on the job, and the same module alone, calling `use(model, step)` between steps. Their
/// bits must not differ.
void expect_undisturbed(const std::function<void(Model& model, Sharded* sharded, int step)>& use) {
  for (const int ranks : {1, 2})
    for (const char* strategy : {"full_shard", "shard_grad_op", "zero1"})
      run_ranks(ranks, [&](comm::World& world) {
        const Task& t = task("mlp");
        const Trained alone = t.make(at::kFloat), job = t.make(at::kFloat);
        Sharded sharded(
            *job.module,
            fitted(
                {.strategy = strategy, .wrap = by_class({"Linear"}), .logical_shards = ranks, .reshard_alone = true}));
        std::vector<optim::Slot> slots;
        for (const auto& [name, p] : trained_parameters(*alone.module)) slots.push_back({.name = name, .parameter = p});
        const auto a = make_rule(Rule::adamw, slots), b = make_rule(Rule::adamw, sharded.slots());
        for (int step = 0; step < 4; ++step) {
          std::vector<at::Tensor> sums;
          for (int i = 0; i < ranks; ++i) {
            for (const auto& s : slots) s.parameter.mutable_grad().reset();
            alone.loss(step, i, ranks).backward();
            for (std::size_t j = 0; j < slots.size(); ++j) {
              at::Tensor g = slots[j].parameter.grad().mul_(1.0 / ranks);
              if (i == 0)
                sums.push_back(g);
              else
                sums[j].add_(g);
            }
          }
          for (std::size_t j = 0; j < slots.size(); ++j) slots[j].parameter.mutable_grad() = sums[j];
          a->step(1e-2);
          sharded.zero_grad();
          job.loss(step, world.rank(), ranks).backward();
          b->step(1e-2);
          use(static_cast<Model&>(*job.module), &sharded, step);
          use(static_cast<Model&>(*alone.module), nullptr, step);
        }
        const auto expected = alone.module->named_parameters();
        sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          EXPECT_TRUE(at::equal(value, expected[name])) << strategy << " " << name;
        });
      });
}

TEST(AnyModule, evaluation_between_steps) {
  std::vector<at::Tensor> of_job;
  expect_undisturbed([&](Model& model, Sharded* sharded, int) {
    at::Tensor y;
    {
      const at::NoGradGuard no_grad;
      y = model.forward(probe());
    }
    at::Tensor z;
    {
      const c10::InferenceMode inference;
      z = model.forward(probe());
      EXPECT_TRUE(at::equal(y, z));
    }
    if (sharded != nullptr) {
      of_job = {y};
    } else {
      EXPECT_TRUE(at::equal(of_job.at(0), y)) << "evaluated with values other than the trained ones";
    }
  });
}

TEST(AnyModule, autocast) {
  expect_undisturbed([kept = std::make_shared<at::Tensor>()](Model& model, Sharded* sharded, int) {
    const at::NoGradGuard no_grad;
    const nn::Autocast cast(true, at::kCPU);
    const at::Tensor y = model.forward(probe());
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    if (sharded != nullptr) {
      *kept = y;
    } else {
      EXPECT_TRUE(at::equal(*kept, y));
    }
  });
  // in training, too
  run_ranks(2, [](comm::World& world) {
    SimpleModel a, b;
    {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < 4; ++i) at::Tensor(a.parameters()[i]).copy_(b.parameters()[i]);
    }
    for (const at::Tensor& p : b.parameters()) world.group().broadcast(p.detach(), 0).wait();
    Sharded sharded(a, {.wrap = by_class({"Linear"})});
    const nn::Autocast cast(true, at::kCPU);
    mean_loss(a, global_batch(0, 8)).backward();
    mean_loss(b, global_batch(0, 8)).backward();
    std::size_t i = 0;
    for (const ShardedParameter& p : sharded.named_parameters())
      EXPECT_TRUE(at::allclose(sharded.gather_like(p, p.local.grad()), b.parameters()[i++].grad(), 1e-6, 1e-7))
          << p.name;
  });
}

TEST(AnyModule, inner_derivatives_and_retained_graphs) {
  for (const int ranks : {1, 2})
    for (const char* strategy : {"full_shard", "zero1", "ddp"})
      run_ranks(ranks, [&](comm::World& world) {
        at::manual_seed(5);
        SimpleModel job, alone;
        std::map<std::string, at::Tensor> expected;
        // A penalty on the gradient with respect to the input: double backward through the weights, and two backwards.
        const auto loss_of = [](Model& model, const Batch& batch) {
          const at::Tensor x = batch.x.clone().requires_grad_();
          const at::Tensor loss = (model.forward(x).tanh() - batch.y).square().mean();
          const at::Tensor g = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
          return loss + g.square().sum();
        };
        {
          const at::NoGradGuard no_grad;
          for (std::size_t i = 0; i < 4; ++i) at::Tensor(alone.parameters()[i]).copy_(job.parameters()[i]);
        }
        for (const at::Tensor& p : alone.parameters()) world.group().broadcast(p.detach(), 0).wait();
        Sharded sharded(job, fitted({.strategy = strategy, .wrap = by_class({"Linear"}), .reshard_alone = true}));
        const Batch batch = global_batch(1, 8);  // the same on all ranks
        const at::Tensor a = loss_of(job, batch), b = loss_of(alone, batch);
        a.backward({}, /*retain_graph=*/true);
        b.backward({}, /*retain_graph=*/true);
        a.backward();
        b.backward();
        for (const auto& p : alone.named_parameters()) expected[p.key()] = p.value().grad();
        for (const ShardedParameter& p : sharded.named_parameters())
          EXPECT_TRUE(at::allclose(sharded.gather_like(p, p.local.grad()), expected.at(p.name), 1e-5, 1e-7))
              << strategy << " " << p.name;
        if (std::string(strategy) != "ddp") {
          sharded.zero_grad();
          EXPECT_THROW(mean_loss(job, batch).backward({}, /*retain_graph=*/true, /*create_graph=*/true), Error);
        }
      });
}

TEST(AnyModule, forward_in_one_thread_and_backward_in_another) {
  const Record expected = train_alone(task("mlp"), Rule::sgd, 2, 4);
  run_ranks(2, [&](comm::World& world) {
    for (const char* strategy : {"full_shard", "zero1"}) {
      const Trained net = task("mlp").make(at::kFloat);
      Sharded sharded(*net.module, fitted({.strategy = strategy, .wrap = by_class({"Linear"}), .logical_shards = 2}));
      const auto optimizer = make_rule(Rule::sgd, sharded.slots(set_decay));
      for (int step = 0; step < 4; ++step) {
        sharded.zero_grad();
        at::Tensor loss;
        const auto on_a_thread = [](const auto& work) {
          std::thread([&] {
            at::set_num_threads(1);  // OpenMP's setting is per thread
            work();
          }).join();
        };
        on_a_thread([&] { loss = net.loss(step, world.rank(), 2); });
        on_a_thread([&] { loss.backward(); });
        EXPECT_EQ(sharded.clip_grad_norm(max_norm), expected.norms[static_cast<std::size_t>(step)]);
        optimizer->step(learning_rate(Rule::sgd));
      }
    }
  });
}

}  // namespace
