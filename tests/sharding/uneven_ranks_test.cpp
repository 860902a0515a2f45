// Ranks that diverge: branches that depend on data, and ranks with less data.
#include <tests/sharding/job.h>

#include <tessera/base/error.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

/// Each row of data selects which layers run, in which order and how often.
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

TEST(UnevenRanks, branches_that_depend_on_data) {
  // [step][rank]: skipped units, a different order, units used several times, unequal numbers of them.
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
        Sharded sharded(job, fitted({.strategy = strategy,
                                     .wrap = by_class({"Linear"}),
                                     .find_unused_parameters = ddp,
                                     .data_dependent = !ddp,
                                     .reshard_root = true,
                                     .reshard_alone = !ddp}));
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
          // An evaluation that takes different paths.
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

// A rank that has run out of data participates with weight zero.
TEST(UnevenRanks, uneven_data) {
  const std::vector<std::int64_t> rows = {7, 3, 5};  // batches of 1 row per rank
  for (const char* strategy : {"full_shard", "zero1", "ddp"})
    run_ranks(3, [&](comm::World& world) {
      at::manual_seed(5);
      SimpleModel job, alone;
      {
        const at::NoGradGuard no_grad;
        for (std::size_t i = 0; i < 4; ++i) at::Tensor(alone.parameters()[i]).copy_(job.parameters()[i]);
      }
      Sharded sharded(job,
                      fitted({.strategy = strategy, .wrap = by_class({"Linear"}), .reduction = comm::Reduction::sum}));
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
