// Errors of ranks under mpirun when one of them does something else (tests/scripts/mpi.sh).
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "../c/processes.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;

void run(const std::function<void(Rank&)>& body) { run_rank(ranks_of_mpirun(), "mpi", body); }

tessera_call within(std::int64_t timeout_ms) {
  tessera_call call{};
  call.size = sizeof call;
  call.timeout_ms = timeout_ms;
  return call;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void pause(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

// mpirun ends the other ranks as soon as a rank with a failed group ends: they meet before, over TCP.
class Meeting : public ::testing::Environment {
 public:
  void TearDown() override {
    if (ranks_of_mpirun() > 1)
      run_rank(ranks_of_mpirun(), "tcp",
               [](Rank& me) { me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier"); });
  }
};
[[maybe_unused]] const auto* const meeting = ::testing::AddGlobalTestEnvironment(new Meeting);

// exit() ends worlds that are open, and finalizes the library when every rank has come to that: a rank that ends early
// must not end the others. The program's status and the slow rank's line are checked by tests/scripts/mpi.sh.
TEST(MpiExit, WithoutShutdown) {
  if (ranks_of_mpirun() < 2) GTEST_SKIP() << "for ranks under mpirun: tests/scripts/mpi.sh";
  tessera_world world = 0;
  const tessera_options options = options_of("mpi");
  ASSERT_EQ(tessera_init_environment("exit", &options, &world), TESSERA_OK) << tessera_last_error();
  std::int32_t rank = 0;
  ASSERT_EQ(tessera_rank(world, &rank), TESSERA_OK);
  if (const pid_t child = fork(); child == 0) {
    std::exit(0);  // a copy of the process: the library is its parent's
  } else {
    waitpid(child, nullptr, 0);
  }
  if (rank == 0) {
    pause(1000);
    std::printf("the slow rank has ended\n");
    std::fflush(stdout);
  }
  std::exit(0);
}

class MpiFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ranks_of_mpirun() < 2) GTEST_SKIP() << "for ranks under mpirun: tests/scripts/mpi.sh";
  }
};

TEST_F(MpiFailure, DifferentCountsNameBothRanks) {
  run([](Rank& me) {
    std::vector<float> data(8, 1);
    const std::int64_t count = me.rank == 1 ? 7 : 8;
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = me.status(
        tessera_all_reduce(me.group, data.data(), data.data(), count, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr),
        TESSERA_MISMATCH, "all_reduce");
    me.expect(contains(text, "7 x float32") && contains(text, "8 x float32") && contains(text, "rank 1 (pid "), text);
    me.expect(std::chrono::steady_clock::now() - begin < milliseconds(1000), "took more than a second");
    me.status(tessera_group_state(me.group), TESSERA_MISMATCH, "state");
  });
}

TEST_F(MpiFailure, AnAbsentRankIsNamedWhenTheTimeIsOver) {
  run([](Rank& me) {
    const int late = me.size - 1;
    const tessera_call call = within(300);
    if (me.rank == late) pause(900);
    const std::string text = me.status(tessera_barrier(me.group, &call, nullptr), TESSERA_TIMEOUT, "barrier");
    if (me.rank == late) return;
    me.expect(contains(text, "rank " + std::to_string(late) + " (pid ") && contains(text, "barrier #0"), text);
  });
}

TEST_F(MpiFailure, AnAbsentSenderIsNamedWhenTheTimeIsOver) {
  run([](Rank& me) {
    if (me.rank != 0) return pause(600);
    int number = 0;
    const tessera_call call = within(200);
    const std::string text = me.status(tessera_recv(me.group, &number, 1, TESSERA_INT32, 1, 0, nullptr, &call, nullptr),
                                       TESSERA_TIMEOUT, "recv");
    me.expect(contains(text, "for rank 1 (pid ") && contains(text, "recv #0"), text);
  });
}

TEST_F(MpiFailure, ARankThatLeftIsNamed) {
  run([](Rank& me) {
    me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
    if (me.rank == 1) return;  // shuts down
    const std::string text = me.status(tessera_barrier(me.group, nullptr, nullptr), TESSERA_PEER_LOST, "barrier");
    me.expect(contains(text, "rank 1 (pid ") && contains(text, "left the group"), text);
  });
}

TEST_F(MpiFailure, AMessageOfAnotherSizeIsAMismatch) {
  for (const std::int64_t sent : {1, 3}) {
    run([&](Rank& me) {
      std::vector<int> numbers(4);
      if (me.rank == 0) me.ok(tessera_send(me.group, numbers.data(), sent, TESSERA_INT32, 1, 0, nullptr, nullptr), "");
      if (me.rank == 1) {
        me.status(tessera_recv(me.group, numbers.data(), 2, TESSERA_INT32, 0, 0, nullptr, nullptr, nullptr),
                  TESSERA_MISMATCH, "recv of another size");
      }
      pause(100);
    });
  }
}

TEST_F(MpiFailure, AnAbortEndsTheWaitsOfAllRanks) {
  run([](Rank& me) {
    if (me.rank == 0) {
      pause(200);
      me.ok(tessera_group_abort(me.group, "no more water"), "abort");
    }
    const std::string text = me.status(tessera_barrier(me.group, nullptr, nullptr), TESSERA_ABORTED, "barrier");
    me.expect(contains(text, "no more water"), text);
  });
}

}  // namespace
}  // namespace tessera::testing
