// Modules of every kind, and everything one does with modules: right, or an error that says what is wrong.
#include <tests/sharding/job.h>

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/transformer.h>
#include <torch/serialize.h>

#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/deferred.h>
#include <tessera/parallel/sharding/managed.h>

#include <cstdio>
#include <sstream>
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
    norm->eval();  // its batch would differ between the ranks and one process
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

/// A module in a module in a module, which reads parameters in many ways.
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

/// A trained pair: the module on the job, and the same alone, with `use(model, step)` between steps. Bits must not
/// differ.
void expect_undisturbed(const std::function<void(Model& model, Sharded* sharded, int step)>& use) {
  for (const int ranks : {1, 2})
    for (const char* strategy : {"full_shard", "shard_grad_op", "zero1"})
      run_ranks(ranks, [&](comm::World& world) {
        const Task& t = task("mlp");
        const Trained alone = t.make(at::kFloat), job = t.make(at::kFloat);
        Sharded sharded(
            *job.module,
            {.strategy = strategy, .wrap = by_class({"Linear"}), .logical_shards = ranks, .reshard_alone = true});
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

at::Tensor probe() { return global_batch(99, 4).x; }

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
      EXPECT_TRUE(at::equal(of_job.at(0), y)) << "evaluated with other values than were trained";
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
  // and in training
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
        // A penalty on the gradient with respect to the input: double backward through the weights; and backward twice.
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
        Sharded sharded(job, {.strategy = strategy, .wrap = by_class({"Linear"}), .reshard_alone = true});
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
      Sharded sharded(*net.module, {.strategy = strategy, .wrap = by_class({"Linear"}), .logical_shards = 2});
      const auto optimizer = make_rule(Rule::sgd, sharded.slots(set_decay));
      for (int step = 0; step < 4; ++step) {
        sharded.zero_grad();
        at::Tensor loss;
        const auto on_a_thread = [](const auto& work) {
          std::thread([&] {
            at::set_num_threads(1);  // OpenMP counts per thread
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

struct Copied : torch::nn::Cloneable<Copied> {
  torch::nn::Linear inner{nullptr};
  at::Tensor w;
  Copied() { reset(); }
  void reset() override {
    inner = register_module("inner", torch::nn::Linear(12, 5));
    w = register_parameter("w", at::ones({5}));
  }
  at::Tensor forward(const at::Tensor& x) { return inner->forward(x) * w; }
};

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(AnyModule, what_one_does_with_modules) {
  for (const int ranks : {1, 2})
    for (const char* strategy : {"full_shard", "zero1"})
      run_ranks(ranks, [&](comm::World&) {
        at::manual_seed(5);
        Copied module;
        const at::Tensor x = global_batch(3, 4).x;
        const at::Tensor expected = module.forward(x).detach();
        const at::Tensor weight = module.inner->weight.detach().clone();
        Sharded sharded(module, {.strategy = strategy, .wrap = by_class({"Linear"}), .reshard_alone = true});
        const at::Tensor first = module.forward(x).detach();  // rank 0's values
        // printing the module and its tensors
        std::ostringstream text;
        text << module << module.inner->weight;
        EXPECT_NE(text.str().find("inner"), std::string::npos);
        // clone: a module of its own, whole
        const auto copy = std::dynamic_pointer_cast<Copied>(module.clone());
        ASSERT_TRUE(copy);
        EXPECT_TRUE(at::equal(copy->forward(x).detach(), first));
        {
          const at::NoGradGuard no_grad;
          copy->w.mul_(2);
        }
        EXPECT_TRUE(at::equal(copy->forward(x).detach(), first * 2));
        EXPECT_TRUE(at::equal(module.forward(x).detach(), first)) << "the copy shares memory";
        // saving: whole tensors or a clear error, never garbage
        std::ostringstream stream;
        const std::string refused = error_of([&] {
          torch::serialize::OutputArchive archive;
          module.save(archive);
          archive.save_to(stream);
        });
        if (refused.empty()) {
          std::istringstream back(stream.str());
          torch::serialize::InputArchive archive;
          archive.load_from(back);
          Copied loaded;
          loaded.load(archive);
          EXPECT_TRUE(at::equal(loaded.forward(x).detach(), first)) << "saved something else";
        } else {
          EXPECT_NE(refused.find("sharded"), std::string::npos) << refused;
        }
        // state of the module: sizes, dtype, device
        EXPECT_EQ(module.inner->weight.sizes(), weight.sizes());
        EXPECT_EQ(module.inner->weight.numel(), weight.numel());
        EXPECT_TRUE(module.inner->weight.requires_grad());
        module.eval();
        module.train();
        module.zero_grad();
        // to() the dtype it has changes nothing
        module.to(at::kFloat);
        module.to(at::kCPU);
        module.forward(x).sum().backward();
        EXPECT_GT(sharded.grad_norm(), 0);
        // to() another one is told at the next backward
        module.to(at::kDouble);
        const std::string replaced = error_of([&] { module.forward(x.to(at::kDouble)).sum().backward(); });
        EXPECT_NE(replaced.find("was replaced"), std::string::npos) << replaced;
      });
}

TEST(AnyModule, the_life_of_the_sharding_object) {
  for (const int ranks : {1, 2})
    for (const char* strategy : {"full_shard", "zero1", "ddp"})
      run_ranks(ranks, [&](comm::World& world) {
        at::manual_seed(5);
        SimpleModel module;
        const Batch batch = global_batch(2, 8);
        const at::Tensor before = (world.group().broadcast(module.parameters()[0].detach(), 0).wait(),
                                   module.parameters()[0].detach().clone());
        {
          Sharded sharded(module, {.strategy = strategy, .reshard_alone = true});
          mean_loss(module, batch).backward();
          sharded.restore();
        }
        EXPECT_TRUE(at::equal(module.parameters()[0].detach(), before)) << "restored";
        EXPECT_FALSE(parallel::is_managed(module.parameters()[0]));
        for (const at::Tensor& p : module.parameters()) p.mutable_grad().reset();
        mean_loss(module, batch).backward();
        EXPECT_TRUE(module.parameters()[0].grad().defined()) << "an ordinary module again";
        for (const at::Tensor& p : module.parameters()) p.mutable_grad().reset();
        // once more, moved, and destroyed without restore()
        {
          Sharded first(module, {.strategy = strategy, .reshard_alone = true});
          Sharded sharded = std::move(first);
          mean_loss(module, batch).backward();
          EXPECT_GT(sharded.grad_norm(), 0);
        }
        if (std::string(strategy) == "ddp" && ranks == 2) return;
        const at::Tensor after = module.forward(batch.x);
        const bool sharded_away = std::string(strategy) == "full_shard";
        if (sharded_away) {
          EXPECT_TRUE(after.isnan().all().item<bool>()) << "values that are gone must not look like values";
        }
      });
}

TEST(AnyModule, unsharded_scopes) {
  for (const int ranks : {1, 2, 3})
    for (const char* strategy : {"full_shard", "shard_grad_op", "zero1", "ddp"})
      run_ranks(ranks, [&](comm::World& world) {
        const Trained net = task("mlp").make(at::kFloat);
        auto& model = static_cast<SimpleModel&>(*net.module);
        std::map<std::string, at::Tensor> values;
        for (const auto& p : model.named_parameters()) values[p.key()] = p.value().detach().clone();
        Sharded sharded(model, {.strategy = strategy, .wrap = by_class({"Linear"}), .reshard_alone = true});
        const std::string first = "layers.0.weight", second = "layers.2.weight";
        const at::Tensor w = model.named_parameters()[first], v = model.named_parameters()[second];
        {
          const auto scope = unsharded(sharded);
          EXPECT_TRUE(at::equal(w.detach(), values.at(first)));
          EXPECT_EQ(w.const_data_ptr<float>()[7], values.at(first).view(-1)[7].item<float>()) << "raw pointers, too";
          EXPECT_TRUE(at::equal(v.detach(), values.at(second)));
          if (std::string(strategy) != "ddp") {
            const at::NoGradGuard no_grad;
            EXPECT_THROW(at::Tensor(w).mul_(2), Error) << "without write_back";
          }
        }
        {
          const auto scope = unsharded(sharded, {.names = {second}, .write_back = true});
          const at::NoGradGuard no_grad;
          at::Tensor(v).mul_(3);
        }
        sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          EXPECT_TRUE(at::equal(value, name == second ? values.at(name) * 3 : values.at(name)))
              << strategy << " " << name;
        });
        EXPECT_THROW((void)unsharded(sharded, {.names = {"layers.0.wight"}}), InputError);
        // Inside of a step, between forward and backward, and nested.
        values[second] = values[second] * 3;
        sharded.zero_grad();
        const at::Tensor loss = net.loss(0, world.rank(), ranks);
        {
          const auto scope = unsharded(sharded, {.names = {first}});
          const auto again = unsharded(sharded);
          EXPECT_TRUE(at::equal(w.detach(), values.at(first)));
        }
        loss.backward();
        SimpleModel alone;
        {
          const at::NoGradGuard no_grad;
          for (auto& p : alone.named_parameters()) p.value().copy_(values.at(p.key()));
        }
        mean_loss(alone, global_batch(0, task_rows)).backward();
        for (const ShardedParameter& p : sharded.named_parameters())
          EXPECT_TRUE(
              at::allclose(sharded.gather_like(p, p.local.grad()), alone.named_parameters()[p.name].grad(), 1e-5, 1e-7))
              << strategy << " " << p.name;
        // Whole tensors in, whole tensors out.
        sharded.load_parameters([&](const std::string& name) { return values.at(name) + 1; });
        sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          EXPECT_TRUE(at::equal(value, values.at(name) + 1)) << name;
        });
        const at::Tensor y = model.forward(probe()).detach();
        EXPECT_FALSE(at::allclose(y, alone.forward(probe()).detach()));
        EXPECT_THROW(sharded.load_parameters([&](const std::string&) { return at::ones({1, 1, 1}); }), InputError);
        sharded.restore();
        EXPECT_TRUE(at::equal(w.detach(), values.at(first) + 1));
      });
}

TEST(AnyModule, deferred_construction) {
  const MyConfig config{.vocabulary = 64, .width = 128, .heads = 4, .layers = 6, .longest = 8};
  for (const int ranks : {1, 2, 4})
    run_ranks(ranks, [&](comm::World& world) {
      for (const char* strategy : {"full_shard", "zero1", "ddp"}) {
        at::manual_seed(9);
        MyTransformer eager(config);
        const at::Tensor random_after = at::rand({3});
        at::manual_seed(9);
        const auto net = deferred<MyTransformerImpl>(config);
        EXPECT_TRUE(at::equal(at::rand({3}), random_after)) << "the random state";
        Sharded sharded(*net, {.strategy = strategy, .wrap = by_class({"MyBlock"}), .reshard_alone = true});
        std::size_t seen = 0;
        sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          EXPECT_TRUE(at::equal(value, eager->named_parameters()[name])) << strategy << " " << name;
          ++seen;
        });
        EXPECT_EQ(seen, eager->parameters().size());
        const at::Tensor ids = at::arange(8).view({1, 8});
        EXPECT_TRUE(at::allclose(net->forward(ids), eager->forward(ids), 1e-5, 1e-6));
      }
      world.group().barrier().wait();
    });
}

TEST(AnyModule, values_from_elsewhere) {
  run_ranks(3, [](comm::World& world) {
    for (const bool late : {false, true})
      for (const char* strategy : {"full_shard", "zero2", "ddp"}) {
        at::manual_seed(9 + static_cast<std::uint64_t>(world.rank()));
        const auto net = late ? deferred<SimpleModel>() : std::make_shared<SimpleModel>();
        std::int64_t elements = 0;
        // Every element is its index in the parameter; one bias is left to the module.
        ShardingOptions options{.strategy = strategy, .wrap = by_class({"Linear"})};
        options.load = [&](const std::string& name, at::IntArrayRef shape, std::int64_t begin, at::Tensor piece) {
          EXPECT_LE(begin + piece.numel(), c10::multiply_integers(shape)) << name;
          EXPECT_EQ(piece.dim(), 1);
          if (name == "layers.0.bias") return false;
          piece.copy_(at::arange(begin, begin + piece.numel()));
          elements += piece.numel();
          return true;
        };
        Sharded sharded(*net, options);
        sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          if (name == "layers.0.bias") {
            EXPECT_TRUE(at::isfinite(value).all().item<bool>()) << "the module's own";
            return;
          }
          EXPECT_TRUE(at::equal(value.reshape({-1}), at::arange(value.numel()).to(at::kFloat)))
              << strategy << " " << name << " late " << late;
        });
        (void)net->forward(probe());
        if (std::string(strategy) == "full_shard") {
          EXPECT_LE(elements, 12 * 32 + 32 * 5 + 5 - 3 * 64) << "a rank reads its part only";
        }
      }
  });
}

/// What each row of data needs: which layers, in which order, how often.
struct Branches : Model {
  torch::nn::Linear in{12, 12}, a{12, 12}, b{12, 12}, c{12, 12}, out{12, 5};
  std::vector<int> path = {0, 1, 2};
  Branches() {
    register_module("in", in);
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
    register_module("out", out);
  }
  at::Tensor forward(at::Tensor x) override {
    x = at::tanh(in->forward(x));
    for (const int i : path) x = at::tanh((i == 0 ? a : i == 1 ? b : c)->forward(x));
    return out->forward(x);
  }
};

TEST(AnyModule, branches_that_depend_on_data) {
  // [step][rank]: skipped units, another order, units used several times, unequal numbers of them.
  const std::vector<std::vector<std::vector<int>>> paths = {
      {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}},
      {{0, 1, 2}, {0, 2}, {}},
      {{0, 1, 2}, {2, 1, 0}, {1, 1}},
      {{0, 1, 0, 1, 2, 0}, {2}, {1, 2}},
      {{}, {}, {}},
      {{1}, {1}, {1}},
      {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}},
  };
  for (const int ranks : {1, 2, 3})
    for (const char* strategy : {"full_shard", "shard_grad_op", "zero2", "zero1", "ddp"})
      run_ranks(ranks, [&](comm::World& world) {
        at::manual_seed(5);
        Branches job, alone;
        {
          const at::NoGradGuard no_grad;
          for (std::size_t i = 0; i < job.parameters().size(); ++i)
            at::Tensor(alone.parameters()[i]).copy_(job.parameters()[i]);
        }
        const bool ddp = std::string(strategy) == "ddp";
        Sharded sharded(job, {.strategy = strategy,
                              .wrap = by_class({"Linear"}),
                              .find_unused_parameters = ddp,
                              .data_dependent = !ddp,
                              .reshard_root = true,
                              .reshard_alone = !ddp});
        std::vector<optim::Slot> slots;
        for (const auto& p : alone.named_parameters()) slots.push_back({.name = p.key(), .parameter = p.value()});
        const auto a = make_rule(Rule::sgd, slots), b = make_rule(Rule::sgd, sharded.slots());
        for (std::size_t step = 0; step < paths.size(); ++step) {
          const Batch batch = global_batch(static_cast<int>(step), 12);
          for (const auto& s : slots) s.parameter.mutable_grad().reset();
          double expected_loss = 0;
          for (int r = 0; r < ranks; ++r) {
            alone.path = paths[step][static_cast<std::size_t>(r)];
            const at::Tensor loss = mean_loss(alone, part(batch, r, ranks)) / ranks;
            if (r == world.rank()) expected_loss = loss.item<double>() * ranks;
            loss.backward();
          }
          a->step(0.05);
          sharded.zero_grad();
          job.path = paths[step][static_cast<std::size_t>(world.rank())];
          const at::Tensor loss = mean_loss(job, part(batch, world.rank(), ranks));
          EXPECT_NEAR(loss.item<double>(), expected_loss, 1e-5) << strategy << " step " << step;
          loss.backward();
          b->step(0.05);
          // An evaluation with paths of its own.
          {
            const at::NoGradGuard no_grad;
            job.path = paths[(step + 1) % paths.size()][static_cast<std::size_t>(world.rank())];
            alone.path = job.path;
            EXPECT_TRUE(at::allclose(job.forward(probe()), alone.forward(probe()), 1e-4, 1e-5))
                << strategy << " evaluation after step " << step;
            if (!ddp) sharded.end_pass();
          }
        }
        sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          EXPECT_TRUE(at::allclose(value, alone.named_parameters()[name], 1e-4, 1e-5))
              << strategy << " on " << ranks << ": " << name;
        });
      });
}

// A rank whose data has run out takes part with weight zero.
TEST(AnyModule, uneven_data) {
  const std::vector<std::int64_t> rows = {7, 3, 5};  // batches of 1 row per rank
  for (const char* strategy : {"full_shard", "zero1", "ddp"})
    run_ranks(3, [&](comm::World& world) {
      at::manual_seed(5);
      SimpleModel job, alone;
      {
        const at::NoGradGuard no_grad;
        for (std::size_t i = 0; i < 4; ++i) at::Tensor(alone.parameters()[i]).copy_(job.parameters()[i]);
      }
      Sharded sharded(job, {.strategy = strategy, .wrap = by_class({"Linear"}), .reduction = comm::Reduction::sum});
      std::vector<optim::Slot> slots;
      for (const auto& p : alone.named_parameters()) slots.push_back({.name = p.key(), .parameter = p.value()});
      const auto a = make_rule(Rule::sgd, slots), b = make_rule(Rule::sgd, sharded.slots());
      for (int step = 0; step < 7; ++step) {
        const auto row = [&](int r) { return part(global_batch(100 * r + step, 1), 0, 1); };
        std::int64_t count = 0;
        for (const std::int64_t n : rows) count += step < n;
        for (const auto& s : slots) s.parameter.mutable_grad().reset();
        for (int r = 0; r < 3; ++r)
          if (step < rows[static_cast<std::size_t>(r)])
            (mean_loss(alone, row(r)) / static_cast<double>(count)).backward();
        a->step(0.05);
        at::Tensor weight = at::full({1}, step < rows[static_cast<std::size_t>(world.rank())] ? 1.0 : 0.0),
                   total = weight.clone();
        world.group().all_reduce(total).wait();
        EXPECT_EQ(total.item<double>(), static_cast<double>(count));
        sharded.zero_grad();
        (mean_loss(job, row(world.rank())) * (weight / total).squeeze()).backward();
        b->step(0.05);
      }
      sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
        EXPECT_TRUE(at::allclose(value, alone.named_parameters()[name], 1e-5, 1e-6)) << strategy << " " << name;
      });
    });
}

}  // namespace
