// A fault on one rank, or in a user's code, becomes a named error on every rank at once; no rank hangs.
#include <tests/sharding/job.h>

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <tessera/base/error.h>

#include <signal.h>

#include <cmath>
#include <cstdio>

namespace {

using namespace tessera;
using namespace tessera::testing;

/// Three layers, the middle one optional, and a hook in forward in which a test can misbehave.
struct Steps : Model {
  torch::nn::Linear first{12, 16}, middle{16, 16}, last{16, 5};
  bool skip = false;
  std::function<void(at::Tensor& h)> inside = {};
  Steps() {
    register_module("first", first);
    register_module("middle", middle);
    register_module("last", last);
  }
  at::Tensor forward(at::Tensor x) override {
    at::Tensor h = at::tanh(first->forward(x));
    if (inside) inside(h);
    if (!skip) h = at::tanh(middle->forward(h));
    return last->forward(h);
  }
};

/// The context in which a fault is injected into a short training run.
struct Scene {
  comm::World& world;
  Steps& model;
  Sharded& sharded;
  bool faulty;  ///< this rank misbehaves
};

struct Fault {
  const char* name;
  std::vector<std::string> everywhere = {};  ///< words that every rank's error contains
  std::vector<std::string> own = {};         ///< words that the faulty rank's error contains
  std::function<void(const Scene&, int step)> before_step = {};
  std::function<void(const Scene&, int step)> before_clip = {};
  std::function<void(Steps& model, bool faulty)> before_wrap = {};
  bool dies = false;    ///< the faulty rank dies without an error
  bool leaves = false;  ///< it exits without an error
  int steps = 6;
};

constexpr int when = 2;  // step of the fault, when the order of units is already known

/// Time elapsed, its limit, and the error text.
std::string result_of(const Stopwatch& watch, const std::string& text) {
  return concat(watch.seconds(), " ", watch.limit(2), "\n", text);
}

/// Trains and collects from each rank the seconds from the fault's step to the error, and the error's text ("" if
/// none).
void expect_named(const Fault& fault, const char* strategy, int ranks, const std::string& backend) {
  const std::string what = concat(fault.name, ", ", strategy, ", ", ranks, " ranks over ", backend);
  RankOptions over;
  over.timeout_s = 300;
  over.init.backend = backend;
  const auto outcomes = run_ranks_outcomes(
      ranks,
      [&](comm::World& world) {
        const bool faulty = world.rank() == ranks - 1;
        Stopwatch watch;
        try {
          at::manual_seed(3);
          Steps model;
          if (fault.before_wrap) fault.before_wrap(model, faulty);
          world.group().barrier().wait();
          watch = Stopwatch();
          ShardingOptions options{.strategy = strategy};
          // Strategies that exchange only buckets get a single bucket, because only the gradients differ.
          if (row_of(options.strategy).shard_parameters) options.wrap = by_class({"Linear"});
          Sharded sharded(model, options);
          const Scene scene{world, model, sharded, faulty};
          torch::optim::SGD optimizer(sharded.parameters(), 0.01);
          for (int step = 0; step < fault.steps; ++step) {
            if (step == when) {
              world.group().barrier().wait();
              watch = Stopwatch();
            }
            if (fault.leaves && faulty && step == when) {
              post(result_of(watch, "left"));
              return;
            }
            Batch batch = part(global_batch(step, 12), world.rank(), world.size());
            if (fault.before_step) fault.before_step(scene, step);
            sharded.zero_grad();
            at::Tensor loss = mean_loss(model, batch);
            loss.backward();
            if (fault.before_clip) fault.before_clip(scene, step);
            (void)sharded.clip_grad_norm(1);
            optimizer.step();
          }
          post(result_of(watch, ""));
        } catch (const std::exception& error) {
          post(result_of(watch, error.what()));
          throw;
        }
      },
      over);
  double slowest = 0;
  int silent = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const RankOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    const bool faulty = rank == ranks - 1;
    for (const RankOutcome::Failure& failure : outcome.failures)
      ADD_FAILURE() << what << ", rank " << rank << ": " << failure.text;
    if (faulty && (fault.dies || fault.leaves)) continue;
    // With sockets a rank may abort on mismatched sizes before it can report; its log has the reason, and the other
    // ranks name it.
    if (outcome.posted.empty() && backend == "gloo" && !outcome.killed_by_harness) {
      ++silent;
      continue;
    }
    if (outcome.posted.empty()) {
      ADD_FAILURE() << what << ": rank " << rank << " reported nothing; it "
                    << (outcome.killed_by_harness ? "hung" : "ended: " + outcome.error);
      continue;
    }
    const std::string& posted = outcome.posted.front();
    const double took = std::stod(posted), limit = std::stod(posted.substr(posted.find(' ')));
    slowest = std::max(slowest, took);
    const std::string text = posted.substr(posted.find('\n') + 1);
    EXPECT_LE(took, limit) << what << ", rank " << rank << ": " << text;
    EXPECT_FALSE(text.empty()) << what << ": no error on rank " << rank;
    std::vector<std::string> words = fault.everywhere;
    if (faulty) words = fault.own.empty() ? fault.everywhere : fault.own;
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos)
          << what << ", rank " << rank << ": '" << word << "' is not in: " << text;
  }
  EXPECT_LT(silent, ranks - 1) << what << ": no rank reported";
  std::printf("  %-44s %-14s %d ranks %-5s %.2f s\n", fault.name, strategy, ranks, backend.c_str(), slowest);
}

void on_all(const Fault& fault, std::vector<const char*> strategies) {
  for (const char* strategy : strategies) {
    expect_named(fault, strategy, 2, "shm");
    if (full_product() || std::string(strategy) == "full_shard") expect_named(fault, strategy, 3, "gloo");
  }
}

using Strategies = std::vector<const char*>;
const Strategies every = {"full_shard", "zero1", "ddp"};

TEST(ShardingFaults, an_exception_in_forward) {
  on_all({.name = "exception in forward",
          .everywhere = {"rank "},
          .own = {"a problem of the user's own"},
          .before_step =
              [](const Scene& s, int step) {
                if (s.faulty && step == when)
                  s.model.inside = [](at::Tensor&) { throw std::runtime_error("a problem of the user's own"); };
              }},
         every);
}

TEST(ShardingFaults, an_exception_in_backward) {
  on_all({.name = "exception in backward",
          .everywhere = {"rank "},
          .own = {"in a hook"},
          .before_step =
              [](const Scene& s, int step) {
                if (s.faulty && step == when)
                  s.model.inside = [](at::Tensor& h) {
                    h.register_hook([](at::Tensor) -> at::Tensor { throw std::runtime_error("in a hook"); });
                  };
              }},
         every);
}

TEST(ShardingFaults, a_nan_on_one_rank) {
  const Fault fault{.name = "NaN on one rank",
                    .everywhere = {"nan", "on rank 1", "first.weight"},
                    .before_step = [](const Scene& s, int step) {
                      // In the gradient of one layer only, so that the name is unambiguous.
                      if (s.faulty && step == when)
                        s.model.inside = [](at::Tensor& h) {
                          h.register_hook([](at::Tensor g) { return at::full_like(g, std::nan("")); });
                        };
                    }};
  for (const char* strategy : {"full_shard", "shard_grad_op", "zero2", "zero1"}) {
    Fault named = fault;
    named.everywhere = {"nan", "on rank 1", "first."};
    expect_named(named, strategy, 2, "shm");
  }
  Fault sums_only = fault;
  sums_only.everywhere = {"nan", "first."};
  expect_named(sums_only, "ddp", 2, "shm");
}

TEST(ShardingFaults, a_unit_that_one_rank_does_not_use) {
  // In a later step the order is known, and the prefetched gather is for a unit that is not used.
  for (const int at_step : {0, when})
    on_all({.name = at_step == 0 ? "unused unit, from the start" : "unused unit, later",
            .everywhere = {"middle"},
            .before_step = [at_step](const Scene& s, int step) { s.model.skip = s.faulty && step >= at_step; }},
           every);
}

TEST(ShardingFaults, a_unit_that_nobody_uses) {
  on_all({.name = "unused everywhere",
          .everywhere = {"middle.weight"},
          .before_step = [](const Scene& s, int step) { s.model.skip = step >= when; }},
         every);
}

TEST(ShardingFaults, a_parameter_read_outside_of_forward_on_one_rank) {
  on_all({.name = "access outside forward",
          .everywhere = {"last", "first"},
          .before_step =
              [](const Scene& s, int step) {
                if (s.faulty && step == when) (void)s.model.last->weight.sum().item<float>();
              }},
         {"full_shard"});
}

TEST(ShardingFaults, data_pointers_outside_of_forward) {
  on_all({.name = "data_ptr outside forward",
          .everywhere = {"rank "},
          .own = {"unit 'last'", "tessera::unsharded"},
          .before_step =
              [](const Scene& s, int step) {
                if (s.faulty && step == when) (void)s.model.last->weight.data_ptr<float>();
              }},
         {"full_shard"});
}

struct Difference {
  const char* name;
  std::vector<std::string> words;
  void (*apply)(Steps&);
};

TEST(ShardingFaults, modules_that_differ) {
  const std::vector<Difference> differences = {
      {"names", {"rank 1", "extra_a"}, [](Steps& m) { m.register_parameter("extra_a", at::zeros({3})); }},
      {"shapes", {"rank 1", "extra"}, [](Steps& m) { m.register_parameter("extra", at::zeros({4})); }},
      {"dtype", {"rank 1", "extra"}, [](Steps& m) { m.register_parameter("extra", at::zeros({3}, at::kDouble)); }},
      {"requires_grad", {"rank 1", "extra"}, [](Steps& m) { m.register_parameter("extra", at::zeros({3}), false); }},
      {"order",
       {"rank 1", "extra"},
       [](Steps& m) {
         m.register_parameter("extra_b", at::zeros({3}));
         m.register_parameter("extra", at::zeros({3}));
       }},
      {"number", {"rank 1"}, [](Steps&) {}},
  };
  for (const Difference& difference : differences)
    for (const char* strategy : {"full_shard", "zero1", "ddp"})
      expect_named({.name = difference.name,
                    .everywhere = difference.words,
                    .before_wrap =
                        [&](Steps& model, bool faulty) {
                          if (!faulty)
                            model.register_parameter("extra", at::zeros({3}));
                          else
                            difference.apply(model);
                          if (!faulty && std::string(difference.name) == "order")
                            model.register_parameter("extra_b", at::zeros({3}));
                        },
                    .steps = 1},
                   strategy, 2, "shm");
}

TEST(ShardingFaults, a_write_in_forward) {
  const auto write = [](const Scene& s) {
    s.model.inside = [&model = s.model](at::Tensor&) {
      const at::NoGradGuard no_grad;
      model.first->weight.mul_(0.5);
    };
  };
  const Fault everyone{.name = "write in forward, everywhere",
                       .everywhere = {"mul_", "unit '", "unsharded"},
                       .before_step = [=](const Scene& s, int step) {
                         if (step == when) write(s);
                       }};
  const Fault one{.name = "write in forward, one rank",
                  .everywhere = {"rank "},
                  .own = {"mul_", "unit '", "unsharded"},
                  .before_step = [=](const Scene& s, int step) {
                    if (s.faulty && step == when) write(s);
                  }};
  on_all(everyone, {"full_shard", "zero1"});
  on_all(one, {"full_shard", "zero1"});
}

TEST(ShardingFaults, a_module_converted_after_it_was_wrapped) {
  on_all({.name = "to() after wrapping, everywhere",
          .everywhere = {"parameter '", "was replaced"},
          .before_step =
              [](const Scene& s, int step) {
                if (step == when) s.model.to(at::kDouble), s.model.to(at::kFloat);
              }},
         {"full_shard", "zero1"});
  on_all({.name = "to() after wrapping, one rank",
          .everywhere = {"rank "},
          .own = {"was replaced"},
          .before_step =
              [](const Scene& s, int step) {
                if (s.faulty && step == when) s.model.to(at::kDouble), s.model.to(at::kFloat);
              }},
         {"full_shard", "zero1"});
}

template <class Optimizer>
void step_of_the_wrong_optimizer(const Scene& s, int step) {
  if (step != when) return;
  Optimizer wrong(s.model.parameters(), 0.01);  // not sharded.parameters()
  wrong.step();
}

TEST(ShardingFaults, an_optimizer_with_the_modules_parameters) {
  on_all({.name = "optimizer of module->parameters()",
          .everywhere = {"sharded.parameters()"},
          .before_clip = step_of_the_wrong_optimizer<torch::optim::SGD>},
         {"full_shard", "zero1"});
  on_all({.name = "AdamW of module->parameters()",
          .everywhere = {"sharded.parameters()"},
          .before_clip = step_of_the_wrong_optimizer<torch::optim::AdamW>},
         {"full_shard", "zero1"});
}

TEST(ShardingFaults, a_rank_that_is_killed) {
  on_all({.name = "killed between steps",
          .everywhere = {"rank "},
          .before_step =
              [](const Scene& s, int step) {
                if (s.faulty && step == when) raise(SIGKILL);
              },
          .dies = true},
         every);
  on_all({.name = "killed in backward",
          .everywhere = {"rank "},
          .before_step =
              [](const Scene& s, int step) {
                if (s.faulty && step == when)
                  s.model.inside = [](at::Tensor& h) {
                    h.register_hook([](at::Tensor g) {
                      raise(SIGKILL);
                      return g;
                    });
                  };
              },
          .dies = true},
         every);
}

TEST(ShardingFaults, a_rank_that_has_fewer_steps) {
  for (const char* strategy : every)
    expect_named({.name = "fewer steps on one rank", .everywhere = {"rank ", "loss times zero"}, .leaves = true},
                 strategy, 2, "shm");
  expect_named({.name = "fewer steps on one rank", .everywhere = {"rank "}, .leaves = true}, "full_shard", 3, "gloo");
}

// After the user catches an exception of forward on every rank, training continues undisturbed.
TEST(ShardingFaults, an_exception_on_every_rank_can_be_survived) {
  for (const char* strategy : {"full_shard", "shard_grad_op", "zero1", "ddp"}) {
    const Task& t = task("mlp");
    const Record expected = train_alone(t, Rule::sgd, 2, 3);
    run_ranks(2, [&](comm::World& world) {
      const Trained net = t.make(at::kFloat);
      Sharded sharded(*net.module, fitted({.strategy = strategy, .wrap = by_class({"Linear"}), .logical_shards = 2}));
      const auto optimizer = make_rule(Rule::sgd, sharded.slots(set_decay));
      for (int step = 0; step < 3; ++step) {
        sharded.zero_grad();
        at::Tensor hooked = net.loss(step, world.rank(), 2);
        hooked.register_hook([](at::Tensor) -> at::Tensor { throw std::runtime_error("caught"); });
        EXPECT_THROW(hooked.backward(), std::runtime_error);
        sharded.zero_grad();
        net.loss(step, world.rank(), 2).backward();
        EXPECT_EQ(sharded.clip_grad_norm(max_norm), expected.norms[static_cast<std::size_t>(step)]) << strategy;
        optimizer->step(learning_rate(Rule::sgd));
      }
    });
  }
}

// The named parameter belongs to this step, not to a step that was skipped; also with the optimizer's zero_grad().
TEST(ShardingFaults, a_norm_that_is_not_finite_names_the_parameter_of_this_step) {
  for (const char* strategy : {"ddp", "zero1", "full_shard"})
    run_ranks(2, [&](comm::World& world) {
      Steps model;
      Sharded sharded(model, {.strategy = strategy});
      torch::optim::SGD optimizer(sharded.parameters(), 0.1);
      const auto spoil = [&](const at::Tensor& t) {
        if (world.rank() == 1) t.register_hook([](const at::Tensor& gradient) { return gradient * std::nan(""); });
      };
      const auto error_of_step = [&](bool early) -> std::string {
        optimizer.zero_grad();
        model.inside = [&](at::Tensor& h) {
          if (early) spoil(h);
        };
        const at::Tensor out = model.forward(at::ones({3, 12}));
        if (!early) spoil(out);
        out.sum().backward();
        try {
          sharded.clip_grad_norm(1.0);
        } catch (const Error& error) {
          return error.what();
        }
        return "";
      };
      const std::string first = error_of_step(true), second = error_of_step(false);
      EXPECT_NE(first.find("first on rank 1 in 'first."), std::string::npos) << strategy << ": " << first;
      EXPECT_NE(second.find("first on rank 1 in 'last."), std::string::npos) << strategy << ": " << second;
    });
}

}  // namespace
