// Uses of a sharded module other than training: printing, copying, saving, reading whole parameters, building it
// without memory.
#include <tests/error_of.h>
#include <tests/sharding/job.h>

#include <torch/nn/cloneable.h>
#include <torch/serialize.h>

#include <tessera/base/error.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/dispatch/managed.h>

#include <cstdio>
#include <sstream>

namespace {

using namespace tessera;
using namespace tessera::testing;

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

TEST(ShardedModule, what_one_does_with_modules) {
  for (const int ranks : {1, 2})
    for (const char* strategy : {"full_shard", "zero1"})
      run_ranks(ranks, [&](comm::World&) {
        at::manual_seed(5);
        Copied module;
        const at::Tensor x = global_batch(3, 4).x;
        const at::Tensor expected = module.forward(x).detach();
        const at::Tensor weight = module.inner->weight.detach().clone();
        Sharded sharded(module, fitted({.strategy = strategy, .wrap = by_class({"Linear"}), .reshard_alone = true}));
        const at::Tensor first = module.forward(x).detach();  // rank 0's values
        // printing the module and its tensors
        std::ostringstream text;
        text << module << module.inner->weight;
        EXPECT_NE(text.str().find("inner"), std::string::npos);
        // clone: an independent, whole module
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
        const std::string refused = error_of<std::exception>([&] {
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
        // to() with another dtype is reported at the next backward
        module.to(at::kDouble);
        const std::string replaced =
            error_of<std::exception>([&] { module.forward(x.to(at::kDouble)).sum().backward(); });
        EXPECT_NE(replaced.find("was replaced"), std::string::npos) << replaced;
      });
}

TEST(ShardedModule, the_life_of_the_sharding_object) {
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
        // wrap again, move the object, and destroy it without restore()
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
          EXPECT_TRUE(after.isnan().all().item<bool>()) << "released values must not look like values";
        }
      });
}

TEST(ShardedModule, unsharded_scopes) {
  for (const int ranks : {1, 2, 3})
    for (const char* strategy : {"full_shard", "shard_grad_op", "zero1", "ddp"})
      run_ranks(ranks, [&](comm::World& world) {
        const Trained net = task("mlp").make(at::kFloat);
        auto& model = static_cast<SimpleModel&>(*net.module);
        std::map<std::string, at::Tensor> values;
        for (const auto& p : model.named_parameters()) values[p.key()] = p.value().detach().clone();
        Sharded sharded(model, fitted({.strategy = strategy, .wrap = by_class({"Linear"}), .reshard_alone = true}));
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
        // Inside a step, between forward and backward, and nested.
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
        if (std::string(strategy) != "ddp") {  // an optimizer's step invalidates an open scope
          const auto scope = unsharded(sharded);
          const at::NoGradGuard no_grad;
          (void)model.forward(probe());
          at::Tensor(sharded.named_parameters().front().local).mul_(1);
          EXPECT_THROW((void)model.forward(probe()), Error);
        }
        // Whole tensors are loaded, and whole tensors are visited.
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

TEST(ShardedModule, deferred_construction) {
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
        Sharded sharded(*net, fitted({.strategy = strategy, .wrap = by_class({"MyBlock"}), .reshard_alone = true}));
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

TEST(ShardedModule, values_from_elsewhere) {
  run_ranks(3, [](comm::World& world) {
    for (const bool late : {false, true})
      for (const char* strategy : {"full_shard", "zero2", "ddp"}) {
        at::manual_seed(9 + static_cast<std::uint64_t>(world.rank()));
        const auto net = late ? deferred<SimpleModel>() : std::make_shared<SimpleModel>();
        std::int64_t elements = 0;
        // Every element equals its index in the parameter; one bias keeps the module's own values.
        ShardingOptions options = fitted({.strategy = strategy, .wrap = by_class({"Linear"})});
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
          EXPECT_LE(elements, 12 * 32 + 32 * 5 + 5 - 3 * 64) << "a rank reads only its part";
        }
      }
  });
}

}  // namespace
