// Ranks that start different collectives are named within a second, whatever the transport makes of it: a hang, a
// broken connection, or numbers without meaning.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/comm/recorder.h>
#include <tests/distributed/harness.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace tessera;
using comm::Group;
using comm::Reduction;
using comm::World;
using tessera::testing::post;
using tessera::testing::RankOptions;
using tessera::testing::run_ranks_outcomes;

constexpr double limit_s = 1.0;

at::Tensor floats(std::int64_t n) { return at::ones({n}); }

struct Kind {
  const char* name;
  int ranks;
  void (*start)(World& world);  // what each rank does wrong
};

const Kind kinds[] = {
    {"another operation", 2,
     [](World& w) {
       if (w.rank() == 0) return w.group().all_reduce(floats(1000)).wait();
       w.group().broadcast(floats(1000), 0).wait();
     }},
    {"another dtype", 2,
     [](World& w) { w.group().all_reduce(floats(1000).to(w.rank() == 0 ? at::kFloat : at::kDouble)).wait(); }},
    {"another dtype of the same width", 2,
     [](World& w) { w.group().all_reduce(floats(1000).to(w.rank() == 0 ? at::kFloat : at::kInt)).wait(); }},
    {"another size", 2, [](World& w) { w.group().all_reduce(floats(w.rank() == 0 ? 1000 : 2000)).wait(); }},
    {"nothing against something", 2, [](World& w) { w.group().all_reduce(floats(w.rank() == 0 ? 1000 : 0)).wait(); }},
    {"another root", 2, [](World& w) { w.group().broadcast(floats(1000), w.rank()).wait(); }},
    {"another reduction", 2,
     [](World& w) { w.group().all_reduce(floats(1000), w.rank() == 0 ? Reduction::sum : Reduction::max).wait(); }},
    {"another order", 2,
     [](World& w) {
       if (w.rank() == 0) w.group().all_reduce(floats(1000)).wait();
       w.group().broadcast(floats(500), 0).wait();
       if (w.rank() == 1) w.group().all_reduce(floats(1000)).wait();
     }},
    {"buckets in another order, asynchronous", 2,
     [](World& w) {
       const bool first = w.rank() == 0;
       comm::Work a = w.group().all_reduce(floats(first ? 1000 : 3000));
       comm::Work b = w.group().all_reduce(floats(first ? 3000 : 1000));
       a.wait();
       b.wait();
     }},
    {"two groups in another order", 2,
     [](World& w) {
       const Group other = w.new_group({0, 1}, "other");
       (w.rank() == 0 ? w.group() : other).all_reduce(floats(1000)).wait();
       (w.rank() == 0 ? other : w.group()).all_reduce(floats(1000)).wait();
     }},
    {"a call left out", 2,
     [](World& w) {
       if (w.rank() == 0) w.group().all_reduce(floats(1000)).wait();
       w.group().barrier().wait();
     }},
    {"the last call left out", 2,
     [](World& w) {
       if (w.rank() == 0) w.group().all_reduce(floats(1000)).wait();
     }},
    {"a collective against a message", 2,
     [](World& w) {
       at::Tensor t = floats(1000);
       if (w.rank() == 0) return w.group().all_reduce(t).wait();
       w.group().recv(t, 0).wait();
     }},
    {"both receive, nobody sends", 2, [](World& w) { w.group().recv(floats(1000), 1 - w.rank()).wait(); }},
    {"all_gather against reduce_scatter", 2,
     [](World& w) {
       at::Tensor whole = floats(2000), part = floats(1000);
       if (w.rank() == 0) return w.group().all_gather(whole, part).wait();
       w.group().reduce_scatter(part, whole).wait();
     }},
    {"one of three ranks", 3,
     [](World& w) { w.group().all_reduce(floats(w.rank() == 1 ? 4096 : 4095)).wait(); }},
};

/// What one rank tells: "SECONDS\nERROR" or "SECONDS\n" when nothing was thrown.
void body(World& world, const Kind& kind) {
  for (int i = 0; i < 3; ++i) world.group().all_reduce(floats(100)).wait();
  world.group().barrier().wait();
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  try {
    {
      const comm::Tag tag("step 7");
      kind.start(world);
    }
    if (std::string(kind.name) == "the last call left out") return;
    // What the transport took for right is found out while the program goes on.
    while (seconds() < 3) {
      world.group().all_reduce(floats(100)).wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    post(concat(seconds(), "\n"));
  } catch (const Error& error) {
    post(concat(seconds(), "\n", error.what()));
  }
}

bool has(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

bool names_it(const std::string& error, int ranks) {
  const bool why = has(error, "started different collectives") || has(error, "wait for each other") ||
                   has(error, "has left the job");
  return why && has(error, "rank 1") && (has(error, "rank 0") || ranks > 2) && has(error, "'step 7'");
}

class Mismatch : public ::testing::TestWithParam<const char*> {};

TEST_P(Mismatch, is_named_within_a_second) {
  int named = 0;
  double worst = 0;
  std::string table;
  for (const Kind& kind : kinds) {
    RankOptions options;
    options.timeout_s = 20;
    options.init.backend = GetParam();
    options.end_after_failure = false;
    const auto begin = std::chrono::steady_clock::now();
    const auto outcomes = run_ranks_outcomes(kind.ranks, [&](World& world) { body(world, kind); }, options);
    bool all = true;
    int told = 0;
    double slowest = 0;
    std::string texts;
    for (const auto& outcome : outcomes) {
      for (const std::string& text : outcome.posted) {
        const std::size_t end = text.find('\n');
        const std::string error = text.substr(end + 1);
        slowest = std::max(slowest, std::stod(text));
        const bool good = names_it(error, kind.ranks);
        told += good;
        all = all && good;
        texts += concat("\n    ", text.substr(0, end), " s: ", error.empty() ? "nothing was thrown" : error);
      }
      if (!outcome.error.empty()) texts += "\n    body: " + outcome.error;
    }
    const bool good = all && told > 0 && slowest <= limit_s;
    EXPECT_TRUE(good) << kind.name << " over " << GetParam() << ":" << texts;
    named += good;
    worst = std::max(worst, slowest);
    char line[128];
    const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::snprintf(line, sizeof line, "  %-42s %s  %.2f s (ended after %.1f s)\n", kind.name,
                  good ? "named    " : "NOT NAMED", slowest, whole);
    table += line;
  }
  std::printf("%s  %s: %d/%zu named, worst %.2f s\n", table.c_str(), GetParam(), named, std::size(kinds), worst);
}

INSTANTIATE_TEST_SUITE_P(Backends, Mismatch, ::testing::Values("gloo", "c10d_gloo", "shm"),
                         [](const auto& info) { return std::string(info.param); });

// Matching collectives of all kinds, ranks that drift apart, many groups, threads: no alarm.
TEST(Mismatch, nothing_is_reported_of_a_sound_program) {
  RankOptions options;
  options.init.backend = "gloo";
  tessera::testing::run_ranks(
      3,
      [](World& world) {
        const Group pair = world.rank() == 2 ? (world.new_group({0, 1}, "dp"), Group()) : world.new_group({0, 1}, "dp");
        const Group late = world.new_group({1, 2}, "dp");  // the same name, another group
        for (int i = 0; i < 6; ++i) {
          world.group().all_reduce(floats(100 + i)).wait();
          if (pair) pair.all_reduce(floats(7)).wait();
          if (world.rank() == i % 3) std::this_thread::sleep_for(std::chrono::milliseconds(350));  // the others wait
          if (late) late.all_reduce(floats(9)).wait();
          at::Tensor t = floats(5);
          if (world.rank() == 0) world.group().send(t, 1).wait();
          if (world.rank() == 1) world.group().recv(t, 0).wait();
          world.group().broadcast(floats(3), i % 3).wait();
        }
        EXPECT_FALSE(comm::recorder().any_failed());
      },
      options);
}

}  // namespace
