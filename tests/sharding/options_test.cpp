// Timing, memory and order options never change a bit of the results; precision options stay within their bounds.
#include <tests/sharding/job.h>

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <tessera/base/error.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>

#include <filesystem>

namespace {

using namespace tessera;
using namespace tessera::testing;
using layout::BackwardPrefetch;
using layout::WrapPolicy;

constexpr int few = 5;

/// A property that a strategy must have for an option to take effect (without it, the option is refused:
/// option_effects_test.cpp).
enum class Needs { nothing, units, resharding };

struct Variation {
  const char* name;
  void (*edit)(ShardingOptions&);
  Needs needs = Needs::nothing;

  bool acts_under(const char* strategy) const {
    const StrategyRow& row = row_of(StrategyName(strategy));
    return needs == Needs::nothing || (row.shard_parameters && (needs == Needs::units || row.reshard_after_forward));
  }
};

const std::vector<Variation>& variations() {
  static const std::vector<Variation> all = {
      {"as it is", [](ShardingOptions&) {}},
      {"no prefetch",
       [](ShardingOptions& o) { o.forward_prefetch = false, o.backward_prefetch = BackwardPrefetch::none; },
       Needs::resharding},
      {"backward prefetch post", [](ShardingOptions& o) { o.backward_prefetch = BackwardPrefetch::post; },
       Needs::resharding},
      {"backward prefetch only", [](ShardingOptions& o) { o.forward_prefetch = false; }},
      {"no limit of gathers", [](ShardingOptions& o) { o.limit_all_gathers = false; }},
      {"no overlap", [](ShardingOptions& o) { o.overlap_comm = false; }},
      {"small ones persist", [](ShardingOptions& o) { o.persistence_threshold = 64; }, Needs::units},
      {"all persist", [](ShardingOptions& o) { o.persistence_threshold = 1 << 20; }, Needs::units},
      {"the root is dropped", [](ShardingOptions& o) { o.reshard_root = true; }, Needs::resharding},
      {"kept after forward", [](ShardingOptions& o) { o.reshard_after_forward = false; }},
      {"dropped after forward", [](ShardingOptions& o) { o.reshard_after_forward = true, o.reshard_root = true; },
       Needs::units},
      {"one unit", [](ShardingOptions& o) { o.wrap = {}; }},
      {"units by size", [](ShardingOptions& o) { o.wrap = by_size(300); }},
      {"units by pattern",
       [](ShardingOptions& o) {
         o.wrap = {.kind = WrapPolicy::Kind::by_regex, .pattern = "blocks\\.[12](\\.attention)?"};
       }},
      {"nested units by name",
       [](ShardingOptions& o) {
         o.wrap = {.kind = WrapPolicy::Kind::by_name, .names = {"blocks.0", "blocks.0.up", "head"}};
       }},
      {"every layer a unit",
       [](ShardingOptions& o) { o.wrap = by_class({"Linear", "LayerNorm", "Embedding", "MultiheadAttention"}); }},
      {"large buckets", [](ShardingOptions& o) { o.first_bucket_mb = o.bucket_mb = 25; }},
      {"tiny buckets", [](ShardingOptions& o) { o.first_bucket_mb = o.bucket_mb = 1e-5; }},
      {"data dependent", [](ShardingOptions& o) { o.data_dependent = true; }},
      {"unused allowed", [](ShardingOptions& o) { o.find_unused_parameters = true; }},
      {"not checked", [](ShardingOptions& o) { o.check_finite = false; }},
      {"parameters offloaded", [](ShardingOptions& o) { o.offload = Offload::params; }, Needs::units},
      {"all offloaded", [](ShardingOptions& o) { o.offload = Offload::all; }, Needs::units},
  };
  return all;
}

class Variations : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Strategy, Variations,
                         ::testing::Values("full_shard", "shard_grad_op", "zero2", "zero1", "hybrid_shard"));

TEST_P(Variations, change_no_bit) {
  for (const int ranks : {1, 2, 4}) {
    if (ranks == 1 && std::string(GetParam()) != "full_shard" && !full_product()) continue;
    if (ranks == 4 && std::string(GetParam()) != "hybrid_shard" && !full_product()) continue;
    const Record expected = train_alone(task("gpt"), Rule::adamw, 2 * ranks, few);
    run_ranks(
        ranks,
        [&](comm::World& world) {
          for (const Variation& variation : variations()) {
            if (!variation.acts_under(GetParam())) continue;
            ShardingOptions options{.strategy = GetParam(),
                                    .wrap = by_class({"MyBlock"}),
                                    .logical_shards = 2 * ranks,
                                    .reshard_alone = true};
            if (options.strategy == Strategy::hybrid_shard) options.shard_group_size = ranks == 1 ? 1 : ranks / 2;
            variation.edit(options);
            try {
              expect_same_bits(world, train_job(world, task("gpt"), options, {.rule = Rule::adamw, .steps = few}),
                               expected, variation.name);
            } catch (const std::exception& error) {
              throw Error(concat(GetParam(), ", ", variation.name, ": ", error.what()));
            }
          }
        },
        90);
  }
}

TEST(Options, backends_change_no_bit) {
  for (const char* backend : {"gloo", "shm"}) {
    for (const int ranks : {2, 4}) {
      RankOptions over;
      over.timeout_s = 60;
      over.init.backend = backend;
      const Record expected = train_alone(task("gpt"), Rule::adamw, ranks, few);
      const Record one = train_alone(task("gpt"), Rule::adamw, 1, few);
      run_ranks(
          ranks,
          [&](comm::World& world) {
            for (const Form& form : forms()) {
              ShardingOptions options{
                  .strategy = form.strategy, .shard_group_size = form.group(ranks), .wrap = by_class({"MyBlock"})};
              expect_close(world, train_job(world, task("gpt"), options, {.rule = Rule::adamw, .steps = few}), one,
                           Rule::adamw, at::kFloat, form.name);
              options.logical_shards = ranks;
              expect_same_bits(world, train_job(world, task("gpt"), options, {.rule = Rule::adamw, .steps = few}),
                               expected, form.name);
            }
          },
          over);
    }
  }
}

/// One backward of every form; returns the reduced gradients, whole, by name.
std::map<std::string, at::Tensor> gradients(comm::World& world, const Task& what, ShardingOptions options,
                                            double* norm = nullptr, double clip_value = 0) {
  const Trained net = what.make(at::kFloat);
  Sharded sharded(*net.module, fitted(std::move(options)));
  net.loss(0, world.rank(), world.size()).backward();
  if (norm != nullptr) *norm = sharded.grad_norm();
  if (clip_value > 0) sharded.clip_grad_value(clip_value);
  std::map<std::string, at::Tensor> result;
  for (const ShardedParameter& p : sharded.named_parameters()) {
    EXPECT_TRUE(p.local.grad().defined()) << p.name;
    result[p.name] = sharded.gather_like(p, p.local.grad());
    if (p.local.is_same(p.local.grad())) ADD_FAILURE();
  }
  return result;
}

double relative(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  double difference = 0, size = 0;
  for (const auto& [name, value] : a) {
    difference += (value.to(at::kDouble) - b.at(name).to(at::kDouble)).square().sum().item<double>();
    size += b.at(name).to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

TEST(Options, precisions_of_the_wire_stay_within_their_bounds) {
  for (const int ranks : {2, 4})
    run_ranks(ranks, [&](comm::World& world) {
      for (const Form& form : forms()) {
        ShardingOptions options{
            .strategy = form.strategy, .shard_group_size = form.group(ranks), .wrap = by_class({"MyBlock"})};
        const auto exact = gradients(world, task("gpt"), options);
        options.reduce_dtype = at::kBFloat16;
        const auto coarse = gradients(world, task("gpt"), options);
        const double error = relative(coarse, exact);
        EXPECT_LE(error, ranks * std::ldexp(1, -8)) << form.name;  // each summand and each sum is rounded once
        EXPECT_GT(error, 1e-5) << form.name << ": nothing was rounded";
        options.reduce_dtype = {};
        options.gradient_predivide_factor = std::sqrt(static_cast<double>(ranks));
        EXPECT_LE(relative(gradients(world, task("gpt"), options), exact), 1e-6) << form.name;
        options.gradient_predivide_factor = 1;
        options.reduction = comm::Reduction::sum;
        auto sums = gradients(world, task("gpt"), options);
        for (auto& [name, value] : sums) value = value / ranks;
        EXPECT_LE(relative(sums, exact), 1e-6) << form.name;
      }
    });
}

// Computing in bfloat16 from fp32 shards equals a module in bfloat16, with gradients summed in fp32.
TEST(Options, computing_in_bfloat16) {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [&](comm::World& world) {
      for (const char* strategy : {"full_shard", "shard_grad_op", "zero2", "zero1", "ddp"}) {
        at::manual_seed(7);
        SimpleModel module;
        std::vector<at::Tensor> expected;
        {
          const Trained plain = make_vectors<SimpleModel>(at::kFloat);
          plain.module->to(at::kBFloat16);
          for (int part_of = 0; part_of < ranks; ++part_of) {
            const Batch batch = part(global_batch(0, task_rows), part_of, ranks);
            for (const at::Tensor& p : plain.module->parameters()) p.mutable_grad().reset();
            (static_cast<Model&>(*plain.module).forward(batch.x.to(at::kBFloat16)) - batch.y)
                .square()
                .mean()
                .backward();
            for (std::size_t i = 0; i < plain.module->parameters().size(); ++i) {
              const at::Tensor g = plain.module->parameters()[i].grad().to(at::kFloat) / ranks;
              if (part_of == 0)
                expected.push_back(g);
              else
                expected[i] = expected[i] + g;
            }
          }
        }
        Sharded sharded(module,
                        fitted({.strategy = strategy, .wrap = by_class({"Linear"}), .param_dtype = at::kBFloat16}));
        mean_loss(module, part(global_batch(0, task_rows), world.rank(), ranks)).backward();
        std::size_t i = 0;
        for (const ShardedParameter& p : sharded.named_parameters()) {
          EXPECT_EQ(p.local.scalar_type(), at::kFloat) << strategy << ": the masters";
          const at::Tensor got = sharded.gather_like(p, p.local.grad());
          EXPECT_LE((got - expected[i]).norm().item<double>(), 1e-6 * expected[i].norm().item<double>())
              << strategy << " " << p.name;
          ++i;
        }
        ASSERT_EQ(i, expected.size());
      }
    });
}

struct Normed : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(8, 16))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(16))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(16, 1))};
  at::Tensor table{register_buffer("table", at::ones({4}))};
  at::Tensor loss(const at::Tensor& x) { return out->forward(at::relu(norm->forward(in->forward(x)))).square().mean(); }
};

// A BatchNorm computes in the type of its statistics, as in PyTorch's FSDP.
TEST(Options, a_batch_norm_keeps_its_type) {
  run_ranks(2, [](comm::World& world) {
    const auto rows = [&](int rank) {
      return at::arange(64, at::kFloat).mul(0.37).add(rank).sin().view({8, 8}).to(at::kBFloat16);
    };
    for (const char* strategy : {"full_shard", "zero2", "zero1", "ddp"})
      for (const bool units : {true, false}) {
        at::manual_seed(7);
        Normed module, plain;
        {
          const at::NoGradGuard no_grad;
          for (std::size_t i = 0; i < plain.parameters().size(); ++i)
            plain.parameters()[i].copy_(module.parameters()[i]);
        }
        plain.in->to(at::kBFloat16);
        plain.out->to(at::kBFloat16);
        for (int rank = 0; rank < 2; ++rank) (plain.loss(rows(rank)).to(at::kFloat) / 2).backward();
        ShardingOptions options{.strategy = strategy, .param_dtype = at::kBFloat16, .buffer_dtype = at::kBFloat16};
        if (units) options.wrap = by_class({"BatchNorm1d", "Linear"});
        Sharded sharded(module, fitted(options));
        module.loss(rows(world.rank())).backward();
        std::size_t i = 0;
        for (const ShardedParameter& p : sharded.named_parameters()) {
          const at::Tensor got = sharded.gather_like(p, p.local.grad()),
                           expected = plain.named_parameters()[p.name].grad().to(at::kFloat);
          EXPECT_LE((got - expected).norm().item<double>(), 0.01 * expected.norm().item<double>() + 1e-6)
              << strategy << " " << p.name;
          ++i;
        }
        EXPECT_EQ(i, 6u);
        EXPECT_EQ(module.norm->weight.scalar_type(), at::kFloat) << strategy;
        EXPECT_EQ(module.norm->running_mean.scalar_type(), at::kFloat) << strategy;
        EXPECT_EQ(module.table.scalar_type(), at::kBFloat16) << strategy << ": other buffers";
        {
          const at::NoGradGuard no_grad;
          module.eval();
          module.loss(rows(0));  // updates the statistics
          module.train();
        }
        EXPECT_EQ(module.in->weight.scalar_type(), at::kBFloat16) << strategy;
        sharded.restore();
        EXPECT_EQ(module.in->weight.scalar_type(), at::kFloat) << strategy;
      }
  });
}

TEST(Options, a_transformer_learns_in_bfloat16) {
  run_ranks(2, [](comm::World& world) {
    for (const char* strategy : {"full_shard", "zero1"})
      for (const char* name : {"gpt", "gpt2", "llama_untied"}) {
        const Task& t = task(name);
        const Training training{.rule = Rule::adamw, .steps = 8};
        ShardingOptions options{.strategy = strategy, .wrap = by_class(t.units)};
        const Record exact = train_job(world, t, options, training);
        options.param_dtype = at::kBFloat16;
        const Record coarse = train_job(world, t, options, training);
        for (std::size_t step = 0; step < exact.losses.size(); ++step)
          EXPECT_NEAR(coarse.losses[step][0] / exact.losses[step][0], 1, 0.02)
              << strategy << " " << name << " step " << step;
        for (const auto& [parameter, value] : coarse.weights) EXPECT_EQ(value.scalar_type(), at::kFloat) << parameter;
      }
  });
}

TEST(Options, clipping_by_norm_and_by_value) {
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [&](comm::World& world) {
      double norm = 0;
      const auto whole = gradients(world, task("gpt"), {.strategy = "ddp"}, &norm);
      double squares = 0;
      for (const auto& [name, value] : whole) squares += value.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(norm / std::sqrt(squares), 1, 1e-12);
      const double limit = norm / 50;
      for (const Form& form : forms()) {
        const ShardingOptions options{.strategy = form.strategy,
                                      .shard_group_size = form.group(ranks),
                                      .wrap = by_class({"MyBlock"}),
                                      .reshard_alone = true};
        double sharded_norm = 0;
        const auto clipped = gradients(world, task("gpt"), options, &sharded_norm, limit);
        EXPECT_NEAR(sharded_norm / norm, 1, 1e-6) << form.name;
        for (const auto& [name, value] : clipped)
          EXPECT_LE((value - whole.at(name).clamp(-limit, limit)).abs().max().item<double>(), 1e-6)
              << form.name << " " << name;
        const Trained net = make_gpt(at::kFloat);
        Sharded sharded(*net.module, fitted(options));
        net.loss(0, world.rank(), world.size()).backward();
        EXPECT_EQ(sharded.clip_grad_norm(norm / 10), sharded_norm) << form.name << ": returns the norm before clipping";
        EXPECT_NEAR(sharded.grad_norm() / (norm / 10), 1, 1e-5) << form.name;
      }
    });
}

// no_sync: DDP and ZeRO-1 send nothing until the last micro-batch; the other strategies must not keep whole gradients.
TEST(Options, no_sync_accumulates) {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [&](comm::World& world) {
      for (const Form& form : forms()) {
        const ShardingOptions options{.strategy = form.strategy,
                                      .shard_group_size = form.group(ranks),
                                      .wrap = by_class({"MyBlock"}),
                                      .reshard_alone = true};
        const auto whole = gradients(world, task("gpt"), options);
        const Trained net = make_gpt(at::kFloat);
        Sharded sharded(*net.module, fitted(options));
        for (int m = 0; m < 3; ++m) {
          std::optional<Sharded::NoSync> pause;
          if (m < 2) pause.emplace(sharded);
          (net.loss(0, world.rank() * 3 + m, world.size() * 3) / 3).backward();
        }
        for (const ShardedParameter& p : sharded.named_parameters()) {
          const at::Tensor got = sharded.gather_like(p, p.local.grad());
          EXPECT_LE((got - whole.at(p.name)).abs().max().item<double>(), 1e-6) << form.name << " " << p.name;
        }
        // zero_grad() discards the gradients accumulated during a pause.
        {
          const auto pause = sharded.no_sync();
          net.loss(1, 0, 1).backward();
        }
        sharded.zero_grad();
        net.loss(0, world.rank(), world.size()).backward();
        for (const ShardedParameter& p : sharded.named_parameters())
          EXPECT_LE((sharded.gather_like(p, p.local.grad()) - whole.at(p.name)).abs().max().item<double>(), 1e-6)
              << form.name << " " << p.name;
      }
    });
}

TEST(Options, a_gradient_of_the_users_joins_what_a_pause_left) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](comm::World& world) {
      const ShardingOptions options{.strategy = "full_shard", .wrap = by_class({"MyBlock"}), .reshard_alone = true};
      const auto whole = gradients(world, task("gpt"), options);
      const Trained net = make_gpt(at::kFloat);
      Sharded sharded(*net.module, options);
      const auto backward = [&] { net.loss(0, world.rank(), world.size()).backward(); };
      {
        const Sharded::AccumulateLocally pause(sharded);
        backward();
      }
      for (const ShardedParameter& p : sharded.named_parameters()) p.local.mutable_grad() = at::ones_like(p.local);
      backward();
      for (const ShardedParameter& p : sharded.named_parameters())
        EXPECT_LE((sharded.gather_like(p, p.local.grad()) - 1 - 2 * whole.at(p.name)).abs().max().item<double>(), 1e-6)
            << ranks << " " << p.name;
    });
}

// torch's own optimizers on local parts, with their zero_grad(), as a user writes it.
TEST(Options, optimizers_of_torch) {
  std::map<std::string, at::Tensor> expected;
  const auto run = [](auto& optimizer, const auto& loss, const auto& zero) {
    for (int step = 0; step < 8; ++step) {
      zero();
      loss(step).backward();
      optimizer.step();
    }
  };
  for (const bool adamw : {false, true}) {
    const Trained alone = make_gpt(at::kFloat);
    const auto train = [&](std::vector<at::Tensor> parameters, const auto& loss) {
      if (adamw) {
        torch::optim::AdamW optimizer(std::move(parameters), torch::optim::AdamWOptions(2e-3).weight_decay(0.01));
        run(optimizer, loss, [&] { optimizer.zero_grad(); });
      } else {
        torch::optim::SGD optimizer(std::move(parameters), torch::optim::SGDOptions(0.05).momentum(0.9));
        run(optimizer, loss, [&] { optimizer.zero_grad(); });
      }
    };
    train(alone.module->parameters(), [&](int step) { return alone.loss(step, 0, 1); });
    for (const auto& p : alone.module->named_parameters()) expected[p.key()] = p.value().detach();
    for (const int ranks : {1, 2, 3})
      run_ranks(ranks, [&](comm::World& world) {
        for (const Form& form : forms()) {
          const Trained net = make_gpt(at::kFloat);
          Sharded sharded(*net.module, fitted({.strategy = form.strategy,
                                               .shard_group_size = form.group(ranks),
                                               .wrap = by_class({"MyBlock"}),
                                               .reshard_alone = true}));
          train(sharded.parameters(), [&](int step) { return net.loss(step, world.rank(), ranks); });
          sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
            const at::Tensor a = without_key_bias(name, value), b = without_key_bias(name, expected.at(name));
            EXPECT_LE((a - b).norm().item<double>(), 1e-5 * b.norm().item<double>())
                << form.name << " " << name << " adamw " << adamw;
          });
        }
      });
  }
}

// One rank: nothing is divided; with reshard_alone all of the machinery still runs.
TEST(Options, one_rank) {
  const Record expected = train_alone(task("gpt"), Rule::adamw, 1, few);
  run_ranks(1, [&](comm::World& world) {
    for (const Form& form : forms())
      for (const bool alone : {false, true})
        for (const std::int64_t V : {0, 1}) {
          const ShardingOptions options{
              .strategy = form.strategy, .wrap = by_class({"MyBlock"}), .logical_shards = V, .reshard_alone = alone};
          expect_same_bits(world, train_job(world, task("gpt"), options, {.rule = Rule::adamw, .steps = few}), expected,
                           concat(form.name, alone ? ", alone" : "", ", V ", V));
        }
  });
}

struct CheckpointedMlp : Model {  // nested regions
  torch::nn::Linear a{12, 32}, b{32, 32}, c{32, 5};
  bool on = true;
  CheckpointedMlp() {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  at::Tensor inner(const at::Tensor& x) { return at::tanh(b->forward(x)); }
  at::Tensor forward(at::Tensor x) override {
    if (!on) return c->forward(inner(at::tanh(a->forward(x))));
    const auto deep = [this](const at::Tensor& h) { return inner(at::tanh(a->forward(h))); };
    x = checkpointed([deep](const at::Tensor& h) { return checkpointed(deep, h) + 0; }, x);
    return checkpointed([this](const at::Tensor& h) { return c->forward(h); }, x);
  }
};
struct PlainMlp : CheckpointedMlp {
  PlainMlp() { on = false; }
};

TEST(Options, activation_checkpointing_changes_no_bit) {
  const Task plain{"plain", make_vectors<PlainMlp>, {"Linear"}},
      regions{"checkpointed", make_vectors<CheckpointedMlp>, {"Linear"}};
  for (const int ranks : {1, 2}) {
    const Record expected = train_alone(plain, Rule::adamw, 2 * ranks, few);
    run_ranks(ranks, [&](comm::World& world) {
      for (const Form& form : forms()) {
        const ShardingOptions options{.strategy = form.strategy,
                                      .shard_group_size = form.group(ranks),
                                      .wrap = by_class({"Linear"}),
                                      .logical_shards = 2 * ranks,
                                      .reshard_alone = true};
        expect_same_bits(world, train_job(world, regions, options, {.rule = Rule::adamw, .steps = few}), expected,
                         form.name);
      }
      EXPECT_GT(parallel::checkpoint_counts().recomputed, 0);
    });
  }
}

TEST(Options, bad_ones_are_refused) {
  run_ranks(2, [](comm::World& world) {
    const auto refused = [&](ShardingOptions options, const std::string& word) {
      SimpleModel module;
      try {
        Sharded sharded(module, std::move(options));
        ADD_FAILURE() << "no error with " << word;
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    };
    EXPECT_THROW(static_cast<void>(ShardingOptions{.strategy = "full_sharp"}), InputError);
    refused({.shard_group_size = 3}, "shard_group_size");
    refused({.strategy = "ddp", .shard_group_size = 2},
            "shard_group_size has no effect under strategy 'ddp': it shards nothing");
    refused({.wrap = by_class({"Liner"})}, "Linear");
    refused({.param_dtype = at::kBFloat16, .logical_shards = 4}, "logical_shards");
    refused({.logical_shards = 3}, "logical_shards");
    SimpleModel frozen;
    for (at::Tensor& p : frozen.parameters()) p.requires_grad_(false);
    EXPECT_THROW(Sharded sharded(frozen), InputError);
    world.group().barrier().wait();
  });
}

}  // namespace
