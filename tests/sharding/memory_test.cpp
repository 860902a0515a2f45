// Bytes per rank against the formulas: each rank permanently keeps its shard, and at most two units are gathered at a
// time.
#include <tests/sharding/job.h>

#include <tessera/nn/allocator.h>
#include <tessera/parallel/deferred/deferred.h>

#include <malloc.h>

#include <cstdio>
#include <fstream>

namespace {

using namespace tessera;
using namespace tessera::testing;

/// Equal layers, an embedding-like parameter of the root, and a probe that runs during forward and backward.
struct Column : torch::nn::Module {
  std::vector<torch::nn::Linear> layers;
  at::Tensor scale;
  std::function<void()> look = {};
  Column(int depth, std::int64_t width) {
    for (int i = 0; i < depth; ++i)
      layers.push_back(
          register_module(concat("layer", i), torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(false))));
    scale = register_parameter("scale", at::ones({width}));
  }
  at::Tensor forward(at::Tensor x) {
    x = x * scale;
    for (auto& layer : layers) {
      x = at::tanh(layer->forward(x));
      if (look) {
        look();
        x.register_hook([this](at::Tensor g) {
          look();
          return g;
        });
      }
    }
    return x;
  }
};

constexpr int depth = 12;
constexpr std::int64_t width = 128;

struct Measured {
  ShardingMemory memory;
  std::int64_t whole = 0, unit = 0, root = 0, optimizer = 0;
};

Measured measure(comm::World& world, ShardingOptions options, int micro_batches) {
  at::manual_seed(1);
  Column column(depth, width);
  Measured result;
  for (const at::Tensor& p : column.parameters()) result.whole += static_cast<std::int64_t>(p.nbytes());
  result.unit = width * width * 4;
  options.wrap = by_class({"Linear"});
  Sharded sharded(column, fitted(std::move(options)));
  const auto optimizer = optim::make_adamw(sharded.slots(), {});
  for (int step = 0; step < 3; ++step) {
    sharded.zero_grad();
    for (int m = 0; m < micro_batches; ++m) {
      std::optional<Sharded::NoSync> pause;
      if (m + 1 < micro_batches) pause.emplace(sharded);
      column.forward(at::full({2, width}, 0.1 * (1 + world.rank() + m))).square().mean().backward();
    }
    (void)sharded.clip_grad_norm(1);
    optimizer->step(1e-3);
  }
  for (const ShardingUnit& unit : sharded.units())
    if (unit.name == "root") result.root = unit.present_bytes;
  for (const auto& [name, tensor] : optimizer->state()) result.optimizer += static_cast<std::int64_t>(tensor.nbytes());
  result.memory = sharded.memory();
  return result;
}

TEST(ShardingMemory, what_stays_is_the_formula) {
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [&](comm::World& world) {
      for (const Form& form : forms()) {
        const std::string name = form.name;
        const int G = form.group(ranks) == 0 ? ranks : form.group(ranks);
        const Measured m = measure(world, {.strategy = form.strategy, .shard_group_size = form.group(ranks)}, 1);
        const double M = static_cast<double>(m.whole);
        const bool shards_parameters = name != "ddp" && !name.ends_with("zero1") && name != "zero2";
        const double shard = name == "ddp" ? M : M / G;
        // The last rank's part contains the padding; averaged over the ranks it is negligible.
        const auto expect_bytes = [&](const char* what, std::int64_t got, double formula) {
          EXPECT_LE(static_cast<double>(got) / formula, 1.01) << form.name << " on " << ranks << ": " << what;
          at::Tensor sum = at::full({1}, static_cast<double>(got), at::kDouble);
          world.group().all_reduce(sum).wait();
          EXPECT_NEAR(sum.item<double>() / (ranks * formula), 1, 0.01) << form.name << " on " << ranks << ": " << what;
        };
        expect_bytes("parameters", m.memory.shards, shards_parameters ? shard : M);
        expect_bytes("optimizer", m.optimizer, 2 * shard);
        expect_bytes("gradients", m.memory.gradients, shard);
      }
    });
}

TEST(ShardingMemory, what_comes_is_two_units) {
  for (const int ranks : {1, 2, 4})
    run_ranks(ranks, [&](comm::World& world) {
      for (const int micro_batches : {1, 3})
        for (const bool root : {false, true}) {
          const Measured m =
              measure(world, {.strategy = "full_shard", .reshard_root = root, .reshard_alone = true}, micro_batches);
          const std::string what = concat(ranks, " ranks, ", micro_batches, " micro-batches, root dropped: ", root);
          EXPECT_LE(m.memory.whole_peak, 2 * m.unit + m.root) << what;
          EXPECT_GE(m.memory.whole_peak, m.unit) << what;
          // With accumulation, a reduction needs a separate result: one unit's share each. Without it, the buffer holds
          // the result.
          const std::int64_t results = micro_batches > 1 && ranks > 1 ? 2 * m.unit / ranks : 0;
          EXPECT_LE(m.memory.flat_gradients_peak, 2 * m.unit + results) << what;
          // On one rank, the first gradients are written directly into their sum.
          EXPECT_EQ(m.memory.flat_gradients_peak > 0, ranks > 1 || micro_batches > 1) << what;
          EXPECT_EQ(m.memory.flat_gradients, 0) << what;
          EXPECT_LE(m.memory.whole, m.root) << what << ": between steps";
          EXPECT_LE(m.memory.pool, 2 * m.unit + 2 * m.unit + results + 4 * m.root) << what;
        }
    });
}

// Under accumulation, ZeRO-3 and ZeRO-2 keep shares of gradients, also inside no_sync().
TEST(ShardingMemory, accumulation_holds_no_full_gradient) {
  run_ranks(4, [](comm::World& world) {
    for (const char* strategy : {"full_shard", "shard_grad_op", "zero2"}) {
      const Measured m = measure(world, {.strategy = strategy, .first_bucket_mb = 0.06, .bucket_mb = 0.06}, 3);
      EXPECT_LE(m.memory.gradients + m.memory.flat_gradients_peak, m.whole / 4 + 5 * m.unit / 2 + m.whole / 100)
          << strategy;
    }
    const Measured whole = measure(world, {.strategy = "zero1", .first_bucket_mb = 0.06, .bucket_mb = 0.06}, 3);
    EXPECT_GE(whole.memory.flat_gradients_peak, whole.whole * 99 / 100)
        << "ZeRO-1 keeps them until the last micro-batch";
  });
}

TEST(ShardingMemory, offload_is_counted_as_such) {
  run_ranks(2, [](comm::World& world) {
    const Measured none = measure(world, {.strategy = "full_shard"}, 1),
                   params = measure(world, {.strategy = "full_shard", .offload = Offload::params}, 1);
    EXPECT_EQ(none.memory.offloaded, 0);
    EXPECT_GE(params.memory.offloaded, params.whole / 2);
  });
}

/// This process's proportional share of physical memory (PSS), in bytes.
std::int64_t proportional_set_size() {
  std::int64_t kib = 0;
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Pss:")) kib = std::atoll(line.c_str() + 4);
  return kib * 1024;
}

TEST(ShardingMemory, of_the_process) {
  constexpr int layers = 64, ranks = 4;  // many units, so that the shard dominates, not the gathered units
  constexpr std::int64_t wide = 1024, rows = 16;
  const auto outcomes = run_ranks(
      ranks,
      [&](comm::World& world) {
        nn::keep_memory();  // glibc's heap would grow with every temporary gradient
        std::vector<double> samples;
        const auto train = [&](int count, std::int64_t size) {
          world.group().barrier().wait();
          malloc_trim(0);
          const std::int64_t base = proportional_set_size();
          samples.clear();
          const auto net = deferred<Column>(count, size);
          Sharded sharded(*net, {.strategy = "full_shard", .wrap = by_class({"Linear"})});
          const auto optimizer = optim::make_adamw(sharded.slots(), {});
          int looks = 0;
          const auto look = [&] { samples.push_back(static_cast<double>(proportional_set_size() - base)); };
          net->look = [&] {
            if (++looks % 16 == 0) look();
          };
          for (int step = 0; step < 2; ++step) {
            sharded.zero_grad();
            net->forward(at::full({rows, size}, 0.1)).square().mean().backward();
            optimizer->step(1e-3);
            look();
          }
          world.group().barrier().wait();
          return sharded.memory();
        };
        (void)train(2, wide);  // warm up: code pages, tables, scratch memory of the products
        const ShardingMemory account = train(layers, wide);
        const std::int64_t M = layers * wide * wide * 4, unit = wide * wide * 4;
        const std::int64_t share = 4 * M / ranks;                       // parameters, gradients, two states
        const std::int64_t activations = rows * wide * 4 * layers * 2;  // tanh's result, and the input of each layer
        const double bound = 1.05 * static_cast<double>(share + 2 * unit + 2 * unit + activations);
        // Ranks map each other's buffers: a page charged less to one rank is charged more to another, so take the mean
        // of the ranks at each moment.
        at::Tensor used = at::tensor(samples, at::kDouble);
        world.group().all_reduce(used).wait();
        const double mean = used.max().item<double>() / ranks;
        EXPECT_LE(mean, bound) << "share " << share << ", unit " << unit << ", activations " << activations;
        const std::int64_t arena =
            account.shards + account.gradients + account.whole_peak + account.flat_gradients_peak + 2 * M / ranks;
        EXPECT_LE(static_cast<double>(arena), bound);
        EXPECT_NEAR(mean / static_cast<double>(arena + activations), 1, 0.15) << "the arena's account";
        if (world.rank() == 0)
          post(concat("FULL_SHARD on 4 ranks, 256 MiB of parameters: ", mean / (1 << 20),
                      " MiB above the idle process; bound ", bound / (1 << 20), " MiB, arena ",
                      static_cast<double>(arena) / (1 << 20), " MiB"));
      },
      60);
  for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
}

/// Layers of unequal sizes, the widest last.
struct Stairs : torch::nn::Module {
  std::vector<torch::nn::Linear> layers;
  at::Tensor scale;
  std::function<void()> look = {};
  explicit Stairs(int steps) {
    for (int i = 0; i < steps; ++i)
      layers.push_back(register_module(
          concat("layer", i), torch::nn::Linear(torch::nn::LinearOptions(width_of(i), width_of(i + 1)).bias(false))));
    scale = register_parameter("scale", at::ones({width_of(0)}));
  }
  static std::int64_t width_of(int i) { return 1536 + 96 * i; }
  at::Tensor forward(at::Tensor x) {
    x = x * scale;
    for (auto& layer : layers) {
      x = at::tanh(layer->forward(x));
      if (look) look();
    }
    return x;
  }
};

// For any unit sizes, temporary memory is two of the largest units and the root, plus two gradients in backward.
TEST(ShardingMemory, of_units_of_unequal_sizes) {
  constexpr int steps = 8;
  struct Case {
    const char* strategy;
    bool by_class_name;
  };
  for (const Case c : {Case{"full_shard", true}, {"full_shard", false}, {"zero1", true}, {"ddp", true}}) {
    const std::string name = concat(c.strategy, c.by_class_name ? ", by_class" : ", by_size");
    const bool gathers = c.strategy == std::string("full_shard"), replicates = c.strategy == std::string("ddp");
    const auto outcomes = run_ranks(
        2,
        [&](comm::World& world) {
          {  // warm up: code pages, tables, scratch memory of the products
            Stairs small(1);
            Sharded sharded(small, {.strategy = c.strategy});
            small.forward(at::full({4, Stairs::width_of(0)}, 0.1)).square().mean().backward();
            for (int i = 0; i < steps; ++i)
              at::linear(at::ones({4, Stairs::width_of(i)}), at::ones({Stairs::width_of(i + 1), Stairs::width_of(i)}));
          }
          nn::keep_memory();
          // Freed tensors are cached for the next one of their size; the cache has its own bound (nn/allocator.h).
          const auto used_bytes = [] { return proportional_set_size() - nn::kept_memory().unused; };
          const std::int64_t idle = used_bytes();
          const auto net = deferred<Stairs>(steps);
          Sharded sharded(
              *net, {.strategy = c.strategy, .wrap = c.by_class_name ? by_class({"Linear"}) : by_size(1'000'000)});
          std::int64_t largest = 0, whole = 0;
          for (const auto& p : net->parameters()) {
            largest = std::max<std::int64_t>(largest, p.numel() * 4);
            whole += p.numel() * 4;
          }
          const std::int64_t root = Stairs::width_of(0) * 4;
          ASSERT_TRUE(!gathers || sharded.units().size() == steps + 1u);
          std::vector<double> samples;
          world.group().barrier().wait();
          malloc_trim(0);
          // DDP's flat gradients are allocated from the start.
          const std::int64_t base = replicates ? idle : used_bytes();
          net->look = [&] { samples.push_back(static_cast<double>(used_bytes() - base)); };
          const at::Tensor x = at::full({4, Stairs::width_of(0)}, 0.1);
          const auto expect_at_most = [&](const char* what, std::int64_t bytes, const std::function<void()>& run) {
            samples.clear();
            for (int pass = 0; pass < 2; ++pass) run();  // the second pass runs next to the first one's cached memory
            at::Tensor used = at::tensor(samples, at::kDouble);
            world.group().all_reduce(used).wait();
            const double mean = used.max().item<double>() / world.size(), bound = 1.15 * static_cast<double>(bytes);
            EXPECT_LE(mean, bound) << what << ", " << name;
            EXPECT_GE(mean, bound / 2) << what << ", " << name << ": nothing was measured";
            if (world.rank() == 0)
              post(
                  concat(what, " of unequal units, ", name, ": ", mean / (1 << 20), " MiB, bound ", bound / (1 << 20)));
          };
          const std::int64_t comes = gathers ? 2 * largest + root : 0;
          if (gathers) {
            expect_at_most("evaluation", comes, [&] {
              const at::NoGradGuard no_grad;
              net->forward(x);
            });
            EXPECT_LE(sharded.memory().pool + sharded.memory().whole, comes * 11 / 10);
          }
          // Two gradients in flight, the sums, and the gradient that autograd has just formed; under DDP the weights,
          // all gradients and that one.
          const std::int64_t made = replicates ? 2 * whole + largest : 2 * largest + whole / world.size() + largest;
          expect_at_most("training", comes + made, [&] {
            sharded.zero_grad();
            net->forward(x).square().mean().backward();
            net->look();
          });
          // The first units of another evaluation had been prefetched when the first training step began.
          EXPECT_LE(sharded.memory().pool, (comes + 3 * largest) * 11 / 10);
        },
        60);
    for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
  }
}

/// Equal layers next to a table several times as large that belongs to no unit.
struct BesideTable : torch::nn::Module {
  at::Tensor table = register_parameter("table", at::ones({2'000'000}));
  std::vector<torch::nn::Linear> layers;
  explicit BesideTable(int count) {
    for (int i = 0; i < count; ++i)
      layers.push_back(register_module(concat("layer", i), torch::nn::Linear(1024, 1024)));
  }
  at::Tensor forward(at::Tensor x) {
    x = x * table.narrow(0, 0, 1024);
    for (auto& layer : layers) x = at::tanh(layer->forward(x));
    return x;
  }
};

// The pool holds at most as much as was in use at one time, whatever the size of the root.
TEST(ShardingMemory, of_units_beside_a_large_root) {
  for (const char* strategy : {"full_shard", "shard_grad_op"})
    run_ranks(2, [&](comm::World&) {
      BesideTable net(6);
      Sharded sharded(net, {.strategy = strategy, .wrap = by_class({"Linear"})});
      for (int pass = 0; pass < 3; ++pass) {
        sharded.zero_grad();
        net.forward(at::full({4, 1024}, 0.1)).square().mean().backward();
      }
      const auto account = sharded.memory();
      const std::int64_t most = account.whole_peak + account.flat_gradients_peak, unit = (1024 + 1) * 1024 * 4;
      EXPECT_GT(most, 8'000'000) << strategy;
      // A unit may use the root's buffer while that is free.
      EXPECT_LE(account.pool + account.whole + account.flat_gradients, most * 106 / 100 + unit) << strategy;
    });
}

/// Physical memory of this process in bytes: the peak since reset_peak(), or the current value.
std::int64_t status_bytes(const char* field) {
  std::int64_t kib = 0;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(field)) kib = std::atoll(line.c_str() + std::string(field).size());
  return kib * 1024;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// A model that is constructed without memory takes its shard, one unit, and the process's own overhead.
TEST(ShardingMemory, of_deferred_construction) {
  constexpr int layers = 64, ranks = 4;
  constexpr std::int64_t wide = 1024;
  for (const bool loaded : {false, true}) {
    const auto outcomes = run_ranks(
        ranks,
        [&](comm::World& world) {
          nn::keep_memory();  // as above
          const std::int64_t before = status_bytes("VmRSS:");
          reset_peak();
          const auto net = deferred<Column>(layers, wide);
          ShardingOptions options{.strategy = "full_shard", .wrap = by_class({"Linear"})};
          if (loaded)
            options.load = [](const std::string&, at::IntArrayRef, std::int64_t, at::Tensor piece) {
              piece.fill_(0.01);
              return true;
            };
          const Sharded sharded(*net, options);
          const std::int64_t most = status_bytes("VmHWM:") - before, share = layers * wide * wide * 4 / ranks,
                             unit = wide * wide * 4;
          EXPECT_LE(most, share + unit + (64 << 20)) << "loaded " << loaded;
          EXPECT_GE(most, share * 9 / 10) << "nothing was measured";
          if (world.rank() == 0)
            post(concat("deferred construction on 4 ranks, ", loaded ? "loaded" : "initialised",
                        ", 256 MiB of parameters: ", most / (1 << 20), " MiB at most, bound ",
                        (share + unit) / (1 << 20) + 64, " MiB"));
        },
        60);
    for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
  }
}

}  // namespace
