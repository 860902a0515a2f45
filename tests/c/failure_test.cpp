// Ranks that die, stop, disagree or abort: every other rank learns in time which rank failed, and why.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "processes.h"

namespace tessera::testing {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Failures : public ::testing::TestWithParam<const char*> {
 protected:
  void run(int n, const std::function<void(Rank&)>& body, int killed = -1) const {
    run_processes(n, GetParam(), body, killed);
  }
};
INSTANTIATE_TEST_SUITE_P(All, Failures, ::testing::Values("shm", "tcp"), [](const auto& info) { return info.param; });

// Factor by which the promised times grow on slow CI machines (sanitizers, other jobs).
constexpr double patience = 2;

TEST_P(Failures, AKilledRankIsNamed) {
  run(
      3,
      [](Rank& me) {
        float number = 1;
        me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
        std::int64_t died = 0;
        if (me.rank == 1) {
          died = Clock::now().time_since_epoch().count();
          me.ok(tessera_store_set(me.world, "died", &died, sizeof died), "store");
          raise(SIGKILL);
        }
        const std::string text =
            me.status(tessera_all_reduce(me.group, &number, &number, 1, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr),
                      TESSERA_PEER_LOST, "all_reduce without rank 1");
        const auto now = Clock::now();
        std::int64_t bytes = 0;
        me.ok(tessera_store_get(me.world, "died", 1000, &died, sizeof died, &bytes), "store");
        const double late = std::chrono::duration<double>(now - Clock::time_point(Clock::duration(died))).count();
        me.expect(late < 0.1 * patience + 0.1, "named after " + std::to_string(late) + " s");
        me.expect(has(text, "rank 1 (pid ") && has(text, " is gone"), text);
        // Later calls fail at once.
        const std::string again =
            me.status(tessera_barrier(me.group, nullptr, nullptr), TESSERA_PEER_LOST, "barrier after it");
        me.expect(has(again, "rank 1 (pid "), again);
        me.status(tessera_group_state(me.group), TESSERA_PEER_LOST, "state");
      },
      1);
}

TEST_P(Failures, AnAsynchronousOperationEndsToo) {
  run(
      2,
      [](Rank& me) {
        me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
        if (me.rank == 1) raise(SIGKILL);
        float number = 1;
        tessera_work reduced = 0, received = 0;
        me.ok(tessera_recv(me.group, &number, 1, TESSERA_FLOAT32, 1, 0, nullptr, nullptr, &received), "recv");
        me.ok(tessera_all_reduce(me.group, &number, &number, 1, TESSERA_FLOAT32, TESSERA_SUM, nullptr, &reduced),
              "start");
        for (const tessera_work work : {reduced, received}) {
          const auto begin = Clock::now();
          std::int32_t ended = 0;
          while (ended == 0 && seconds_since(begin) < 10) {
            me.ok(tessera_work_test(work, &ended), "test");
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          me.expect(ended == 1, "polled for ever");
          me.status(tessera_work_status(work), TESSERA_PEER_LOST, "status");
          char text[300];
          me.ok(tessera_work_error(work, text, sizeof text, nullptr), "error");
          me.expect(has(text, "rank 1 (pid "), text);
          me.ok(tessera_work_free(work), "free");
        }
      },
      1);
}

TEST_P(Failures, AStoppedRankIsNamedAfterTheTimeout) {
  run(3, [](Rank& me) {
    me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
    if (me.rank == 2) {
      std::this_thread::sleep_for(std::chrono::seconds(4));
      return;
    }
    tessera_call call{};
    call.size = sizeof call;
    call.timeout_ms = 1000;
    const auto begin = Clock::now();
    const std::string text = me.status(tessera_barrier(me.group, &call, nullptr), TESSERA_TIMEOUT, "barrier");
    me.expect(seconds_since(begin) >= 0.9 && seconds_since(begin) < 1.0 + patience, "after another time");
    me.expect(has(text, "rank 2 (pid ") || has(text, "failed: waited 1"), text);
    me.expect(has(text, "in barrier #1 of group 'world' (3 ranks)"), text);
  });
}

// exit() of a forked rank, where leak checkers would report what the parent had allocated. The handler is registered
// before any of the library's, and therefore runs after them.
int code_at_exit = -1;
[[maybe_unused]] const int registered = std::atexit([] {
  if (code_at_exit >= 0) _exit(code_at_exit);
});
[[noreturn]] void exit_without_leak_check(int code) {
  code_at_exit = code;
  std::exit(code);
}

// A program that ends without tessera_shutdown() has finished its part: the others continue.
TEST_P(Failures, ARankThatExitsLeavesInOrder) {
  run(3, [](Rank& me) {
    std::vector<float> numbers(2'000'000, me.rank == 0 ? 7.0F : 0.0F);
    const auto count = static_cast<std::int64_t>(numbers.size());
    if (me.rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    tessera_work work = 0;
    me.ok(tessera_broadcast(me.group, numbers.data(), count, TESSERA_FLOAT32, 0, nullptr, &work), "broadcast");
    me.ok(tessera_work_wait(work, -1, nullptr), "wait");
    me.ok(tessera_work_free(work), "free");
    me.expect(numbers.front() == 7 && numbers.back() == 7, "the root's numbers");
    if (me.rank == 0) exit_without_leak_check(me.complaints.count == 0 ? 0 : 1);
    if (me.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      me.ok(tessera_send(me.group, numbers.data(), 9, TESSERA_FLOAT32, 1, 0, nullptr, nullptr), "send");
      return;
    }
    me.ok(tessera_recv(me.group, numbers.data(), 9, TESSERA_FLOAT32, 2, 0, nullptr, nullptr, nullptr), "recv");
    const std::string text =
        me.status(tessera_recv(me.group, numbers.data(), 9, TESSERA_FLOAT32, 0, 0, nullptr, nullptr, nullptr),
                  TESSERA_PEER_LOST, "recv from the rank that has left");
    me.expect(has(text, "rank 0 (pid ") && has(text, "left the group"), text);
  });
}

// A handler that calls exit() interrupts an operation whose frame is below it: nothing may wait for that operation.
TEST_P(Failures, ExitInASignalHandlerEndsTheProcess) {
  run(
      2,
      [](Rank& me) {
        float one = 1;
        if (me.rank == 1) {
          signal(SIGALRM, [](int) { exit_without_leak_check(0); });
          itimerval soon{};
          soon.it_value.tv_usec = 300'000;
          setitimer(ITIMER_REAL, &soon, nullptr);
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(800));
        }
        const auto status = tessera_recv(me.group, &one, 1, TESSERA_FLOAT32, 1 - me.rank, 0, nullptr, nullptr, nullptr);
        me.status(status, TESSERA_PEER_LOST, "recv from the rank that has ended");
      },
      1);
}

TEST(SharedMemory, ATimeoutNamesAllMissingRanks) {
  run_processes(4, "shm", [](Rank& me) {
    me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
    if (me.rank >= 2) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      return;
    }
    tessera_call call{};
    call.size = sizeof call;
    call.timeout_ms = 500;
    float number = 0;
    const std::string text =
        me.status(tessera_all_reduce(me.group, &number, &number, 1, TESSERA_FLOAT32, TESSERA_SUM, &call, nullptr),
                  TESSERA_TIMEOUT, "all_reduce");
    me.expect(has(text, "rank 2 (pid ") && has(text, ", rank 3 (pid ") && has(text, "to start it (timeout)"), text);
    me.expect(has(text, "all_reduce #1 of group 'world' (4 ranks, 1 x float32, sum)") && has(text, "waited 0.5"), text);
  });
}

// The program's other threads may send: ranks that block in recv are not a deadlock.
TEST_P(Failures, RanksThatReceiveWhileOtherThreadsWillSendAreNoDeadlock) {
  run(2, [](Rank& me) {
    float mine = static_cast<float>(me.rank), theirs = -1;
    std::atomic<tessera_status> sent{TESSERA_SYSTEM};
    std::thread sender([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      sent = tessera_send(me.group, &mine, 1, TESSERA_FLOAT32, 1 - me.rank, 0, nullptr, nullptr);
    });
    me.ok(tessera_recv(me.group, &theirs, 1, TESSERA_FLOAT32, 1 - me.rank, 0, nullptr, nullptr, nullptr), "recv");
    sender.join();
    me.expect(sent == TESSERA_OK && theirs == static_cast<float>(1 - me.rank), "the message");
  });
}

#if !defined(__SANITIZE_THREAD__)  // which has a thread of its own
TEST(SharedMemory, RanksThatReceiveFromEachOtherAreNamed) {
  run_processes(2, "shm", [](Rank& me) {
    float number = 0;
    const auto begin = Clock::now();
    const std::string text =
        me.status(tessera_recv(me.group, &number, 1, TESSERA_FLOAT32, 1 - me.rank, 0, nullptr, nullptr, nullptr),
                  TESSERA_MISMATCH, "recv");
    me.expect(has(text, "the ranks wait for each other") && seconds_since(begin) < 5, text);
  });
}
#endif

TEST(SharedMemory, ARankStoppedBySignalIsNamed) {
  run_processes(3, "shm", [](Rank& me) {
    me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
    if (me.rank == 1) {
      const pid_t self = getpid();
      if (fork() == 0) {  // resumes this rank later
        std::this_thread::sleep_for(std::chrono::seconds(8));
        kill(self, SIGCONT);
        _exit(0);
      }
      raise(SIGSTOP);
      return;
    }
    const auto begin = Clock::now();
    float number = 0;
    const std::string text =
        me.status(me.rank == 0 ? tessera_recv(me.group, &number, 1, TESSERA_FLOAT32, 1, 0, nullptr, nullptr, nullptr)
                               : tessera_barrier(me.group, nullptr, nullptr),
                  TESSERA_PEER_LOST, "waiting for a stopped rank");
    me.expect(seconds_since(begin) > 2 && seconds_since(begin) < 5, text);
    me.expect(has(text, "rank 1 (pid ") && has(text, "is stopped (SIGSTOP)"), text);
  });
}

// Over TCP a sender may be done before the receiver checks: the next operation then reports the error.
tessera_status then_barrier(tessera_group group, tessera_status status) {
  return status == TESSERA_OK ? tessera_barrier(group, nullptr, nullptr) : status;
}

// A rank whose operation timed out owns its memory again. A late rank must not read that memory and report success.
TEST_P(Failures, ALateRankDoesNotSucceedAlone) {
  const bool shm = std::string(GetParam()) == "shm";
  for (const std::int64_t n : {std::int64_t{4}, std::int64_t{2'000'000}})
    for (const bool broadcast : {false, true}) {
      if (broadcast && !shm) continue;  // over TCP a root may finish before the others
      run(2, [&](Rank& me) {
        void* memory = nullptr;
        me.ok(tessera_memory_allocate(n * 4, &memory), "memory");
        auto* numbers = static_cast<float*>(memory);
        std::fill_n(numbers, n, 1.0F);
        me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
        tessera_call call = {};
        call.size = sizeof call;
        call.timeout_ms = 300;
        if (me.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
        const tessera_status status =
            broadcast ? tessera_broadcast(me.group, numbers, n, TESSERA_FLOAT32, 0, &call, nullptr)
                      : tessera_all_reduce(me.group, numbers, numbers, n, TESSERA_FLOAT32, TESSERA_SUM, &call, nullptr);
        const float right = broadcast ? 1.0F : 2.0F;  // short messages are copied at the start: a late rank may succeed
        const bool is_right = std::all_of(numbers, numbers + n, [&](float x) { return x == right; });
        if (me.rank == 0) std::fill_n(numbers, n, 1e6F);
        const std::string what = std::string(broadcast ? "broadcast" : "all_reduce") + " of " + std::to_string(n);
        me.expect(status != TESSERA_OK || (shm && n == 4 && is_right),
                  what + " succeeded on rank " + std::to_string(me.rank));
        me.expect(me.rank == 1 || status == TESSERA_TIMEOUT, what + ": " + tessera_status_name(status));
        std::this_thread::sleep_for(std::chrono::milliseconds(me.rank == 0 ? 1500 : 0));
      });
    }
}

TEST_P(Failures, DifferentOperationsAreNamed) {
  struct Pair {
    const char* what;
    std::function<tessera_status(tessera_group, float*)> one, other;
    const char *first, *second;
  };
  const std::vector<Pair> pairs = {
      {"another operation",
       [](tessera_group g, float* x) {
         return then_barrier(g, tessera_broadcast(g, x, 4, TESSERA_FLOAT32, 0, nullptr, nullptr));
       },
       [](tessera_group g, float* x) {
         return tessera_all_reduce(g, x, x, 4, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr);
       },
       "broadcast #", "all_reduce #"},
      {"another dtype",
       [](tessera_group g, float* x) {
         return tessera_all_reduce(g, x, x, 4, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr);
       },
       [](tessera_group g, float* x) {
         return tessera_all_reduce(g, x, x, 4, TESSERA_INT32, TESSERA_SUM, nullptr, nullptr);
       },
       "4 x float32, sum", "4 x int32, sum"},
      {"another count",
       [](tessera_group g, float* x) {
         return tessera_all_reduce(g, x, x, 4, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr);
       },
       [](tessera_group g, float* x) {
         return tessera_all_reduce(g, x, x, 5, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr);
       },
       "4 x float32", "5 x float32"},
      {"another root, both receive",
       [](tessera_group g, float* x) { return tessera_broadcast(g, x, 4, TESSERA_FLOAT32, 1, nullptr, nullptr); },
       [](tessera_group g, float* x) { return tessera_broadcast(g, x, 4, TESSERA_FLOAT32, 0, nullptr, nullptr); },
       "root 1", "root 0"},
      {"another label",
       [](tessera_group g, float* x) {
         tessera_call call{};
         call.size = sizeof call;
         call.label = "first layer";
         return tessera_all_reduce(g, x, x, 4, TESSERA_FLOAT32, TESSERA_SUM, &call, nullptr);
       },
       [](tessera_group g, float* x) {
         return tessera_all_reduce(g, x, x, 4, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr);
       },
       "first layer", "all_reduce #"},
      {"another reduction",
       [](tessera_group g, float* x) {
         return tessera_all_reduce(g, x, x, 4, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr);
       },
       [](tessera_group g, float* x) {
         return tessera_all_reduce(g, x, x, 4, TESSERA_FLOAT32, TESSERA_MAX, nullptr, nullptr);
       },
       "float32, sum", "float32, max"},
      {"another size of a message",
       [](tessera_group g, float* x) {
         return then_barrier(g, tessera_send(g, x, 4, TESSERA_FLOAT32, 1, 0, nullptr, nullptr));
       },
       [](tessera_group g, float* x) {
         return tessera_recv(g, x, 3, TESSERA_FLOAT32, 0, 0, nullptr, nullptr, nullptr);
       },
       "send #0", "recv #0"},
  };
  for (const Pair& pair : pairs) {
    run(2, [&](Rank& me) {
      float numbers[8] = {};
      const auto begin = Clock::now();
      const auto status = me.rank == 0 ? pair.one(me.group, numbers) : pair.other(me.group, numbers);
      const std::string text = me.status(status, TESSERA_MISMATCH, pair.what);
      me.expect(seconds_since(begin) < 1.0 + patience, std::string(pair.what) + ": late");
      me.expect(has(text, pair.first) && has(text, pair.second), std::string(pair.what) + ": " + text);
    });
  }
}

TEST_P(Failures, UnevenExchangesThatDoNotFit) {
  run(2, [](Rank& me) {
    float numbers[8] = {}, results[8] = {};
    const std::int64_t to[] = {1, 2}, from[] = {1, me.rank == 0 ? 2 : 1};
    me.status(tessera_all_to_all_v(me.group, numbers, to, results, from, TESSERA_FLOAT32, nullptr, nullptr),
              TESSERA_MISMATCH, "all_to_all_v");
  });
}

TEST_P(Failures, AnAbortReachesThoseWhoWait) {
  run(3, [](Rank& me) {
    if (me.rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      me.ok(tessera_group_abort(me.group, "no more data"), "abort");
    }
    float number = 0;
    const std::string text =
        me.status(tessera_recv(me.group, &number, 1, TESSERA_FLOAT32, (me.rank + 1) % 3, 0, nullptr, nullptr, nullptr),
                  TESSERA_ABORTED, "recv");
    me.expect(has(text, "aborted: no more data"), text);
    me.status(tessera_barrier(me.group, nullptr, nullptr), TESSERA_ABORTED, "barrier after it");
    me.status(tessera_group_state(me.group), TESSERA_ABORTED, "state");
  });
}

// Another thread ends the world while this one waits.
TEST_P(Failures, ShutdownEndsOwnWaitsAndTheOthersAreTold) {
  run(2, [](Rank& me) {
    float number = 0;
    if (me.rank == 0) {
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        tessera_shutdown(me.world);
      });
      me.status(tessera_all_reduce(me.group, &number, &number, 1, TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr),
                TESSERA_SHUT_DOWN, "all_reduce");
      other.join();
      me.status(tessera_barrier(me.group, nullptr, nullptr), TESSERA_SHUT_DOWN, "barrier of an ended group");
      me.status(tessera_shutdown(me.world), TESSERA_SHUT_DOWN, "a second shutdown");
      return;
    }
    const std::string text =
        me.status(tessera_recv(me.group, &number, 1, TESSERA_FLOAT32, 0, 0, nullptr, nullptr, nullptr),
                  TESSERA_PEER_LOST, "recv");
    me.expect(has(text, "rank 0 (pid ") && has(text, "left the group (shutdown) while this rank waits"), text);
  });
}

TEST(Meeting, MissingRanksAreNamed) {
  const TemporaryFolder folder;
  tessera_options options = options_of("auto");
  options.connect_timeout_ms = 300;
  tessera_world world = 7;
  EXPECT_EQ(tessera_init_folder(folder.path().c_str(), 1, 4, "few", &options, &world), TESSERA_TIMEOUT);
  EXPECT_STREQ(tessera_last_error(),
               "waited 0.3 s for ranks 0, 2, 3 of 4 (address of 'meet'): not started yet, or already exited.");
  EXPECT_EQ(world, 7u);
}

TEST(Meeting, ARankComesOnce) {
  const TemporaryFolder folder;
  tessera_world world = 0;
  EXPECT_EQ(tessera_init_folder(folder.path().c_str(), 0, 1, "once", nullptr, &world), TESSERA_OK);
  EXPECT_EQ(tessera_init_folder(folder.path().c_str(), 0, 1, "once", nullptr, &world), TESSERA_INVALID);
  EXPECT_STREQ(tessera_last_error(),
               "rank 0 of 'once' has already joined this store: two processes have the same rank, or the name was used "
               "before.");
  EXPECT_EQ(tessera_shutdown(world), TESSERA_OK);
}

}  // namespace
}  // namespace tessera::testing
