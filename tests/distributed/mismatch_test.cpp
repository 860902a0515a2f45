// Ranks that start different collectives are named within a second, whether the transport would hang, break the
// connection, or deliver garbage.
#include <tests/distributed/mismatch_kinds.h>

namespace {

using namespace tessera;
using namespace tessera::testing;
using comm::Group;
using comm::World;

at::Tensor floats(std::int64_t n) { return at::ones({n}); }

bool names_it(const std::string& error, const MismatchKind& kind) {
  const bool why = has_word(error, "started different collectives") ||
                   has_word(error, "started different operations") || has_word(error, "the message does not fit") ||
                   has_word(error, "wait for each other") || has_word(error, "has left the job") ||
                   has_word(error, "left the group");
  const std::string tag = std::string(kind.name) == "tag" ? "'layer 4'" : "'step 7'";
  return why && has_word(error, "rank 1") && (has_word(error, "rank 0") || kind.ranks > 2) && has_word(error, tag);
}

class Mismatch : public ::testing::TestWithParam<const char*> {};

TEST_P(Mismatch, is_named_within_a_second) {
  const std::string backend = GetParam();
  int kinds = 0, named = 0;
  double worst = 0;
  std::string table;
  for (const MismatchKind& kind : mismatch_kinds()) {
    if (kind.by_transport && backend != "shm") continue;
    ++kinds;
    const Stopwatch watch;
    std::string texts;
    const auto seen = run_mismatch(kind, backend, texts);
    bool all = true;
    int told = 0;
    double slowest = 0;
    for (const auto& rank : seen) {
      if (!rank) continue;
      slowest = std::max(slowest, rank->seconds);
      bool good = names_it(rank->error, kind) && rank->seconds <= rank->limit;
      // Shared memory compares the operations themselves, so the error contains both signatures.
      if (backend == "shm") {
        for (const char* word : kind.words) good = good && has_word(rank->error, word);
      }
      told += good;
      all = all && good;
    }
    // Over sockets, a rank may die of mismatched sizes before it can report; over shared memory all ranks report.
    const int least = backend == "shm" && !kind.one_leaves ? kind.ranks : 1;
    const bool good = all && told >= least;
    EXPECT_TRUE(good) << kind.name << " over " << backend << ":" << texts;
    named += good;
    worst = std::max(worst, slowest);
    char line[128];
    std::snprintf(line, sizeof line, "  %-42s %s  %.2f s (ended after %.1f s)\n", kind.name,
                  good ? "named    " : "NOT NAMED", slowest, watch.seconds());
    table += line;
  }
  std::printf("%s  %s: %d/%d named, worst %.2f s\n", table.c_str(), backend.c_str(), named, kinds, worst);
}

INSTANTIATE_TEST_SUITE_P(Backends, Mismatch, ::testing::Values("gloo", "c10d_gloo", "shm"),
                         [](const auto& info) { return std::string(info.param); });

// Matching collectives of all kinds, ranks that drift apart, many groups, threads: no false alarm.
TEST(Mismatch, nothing_is_reported_of_a_sound_program) {
  RankOptions options;
  options.init.backend = "gloo";
  tessera::testing::run_ranks(
      3,
      [](World& world) {
        const Group pair = world.rank() == 2 ? (world.new_group({0, 1}, "dp"), Group()) : world.new_group({0, 1}, "dp");
        const Group late = world.new_group({1, 2}, "dp");  // the same name for another group
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
