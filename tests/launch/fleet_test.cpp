// Fleets of several agents in one process: each machine is a thread, and machine 0's thread serves the store as an
// agent's loop does. Sockets are real; a machine's death is simulated by a fleet that disappears without a message.

#include <gtest/gtest.h>
#include <poll.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/fleet/fleet.h>
#include <tessera/launch/fleet/fleet_link.h>
#include <tests/stopwatch.h>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include "relay.h"

namespace tessera::launch {
namespace {

using Strings = std::vector<std::string>;

StoreOptions store_options(const Secret& secret) {
  StoreOptions options;
  options.secret = secret;
  return options;
}

class FleetTest : public ::testing::Test {
 protected:
  FleetOptions options(int machine, int machines) {
    FleetOptions result;
    result.machine_rank = machine;
    result.num_machines = machines;
    result.local_processes = machine + 1;  // unequal on purpose
    result.hostname = concat("host", machine);
    result.store_address = "127.0.0.1";
    result.store_port = server_.port();
    result.secret = secret_;
    result.join_seconds = 600;
    if (machine == 0) result.server = &server_;
    return result;
  }

  /// Runs an agent's loop until an event or for `seconds` (scaled on a busy machine).
  std::optional<FleetEvent> watch(Fleet& fleet, int machine, double seconds) {
    const testing::Stopwatch stopwatch;
    return look(fleet, machine, [&] { return stopwatch.seconds() < stopwatch.limit(seconds); });
  }

  /// As watch, where no event is expected: the time need not be scaled on a busy machine.
  std::optional<FleetEvent> watch_in_vain(Fleet& fleet, int machine, double seconds) {
    const testing::Stopwatch stopwatch;
    return look(fleet, machine, [&] { return stopwatch.seconds() < seconds; });
  }

  template <class GoesOn>
  std::optional<FleetEvent> look(Fleet& fleet, int machine, const GoesOn& goes_on) {
    while (goes_on()) {
      pollfd watched[2] = {{fleet.event_fd(), POLLIN, 0}, {machine == 0 ? server_.fd() : -1, POLLIN, 0}};
      ::poll(watched, 2, 20);
      if (machine == 0) server_.turn();
      if (watched[0].revents != 0) return fleet.event();
    }
    return fleet.event();
  }

  /// Returns when all machines have joined: once machine 0 has, the last answers to the others may still be unsent.
  void wait_for_all(int machine, int machines) {
    const testing::Stopwatch stopwatch;
    ++in_;
    while (machine == 0 && in_ < machines && stopwatch.seconds() < stopwatch.limit(60)) {
      server_.turn();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  /// Runs `body(machine)` for all machines concurrently; returns each machine's error, empty for none.
  Strings run(int machines, const std::function<void(int)>& body) {
    Strings errors(static_cast<std::size_t>(machines));
    std::vector<std::thread> threads;
    for (int k = 0; k < machines; ++k) {
      threads.emplace_back([&, k] {
        try {
          body(k);
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(k)] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  std::atomic<int> in_{0};
  const Secret secret_ = make_secret();
  StoreServer server_{store_options(secret_)};
};

TEST_F(FleetTest, AllMachinesGetTheSamePlanAndEndTogether) {
  std::vector<FleetPlan> plans(3);
  std::vector<FleetVerdict> verdicts(3);
  const Strings errors = run(3, [&](int k) {
    Fleet fleet(options(k, 3));
    plans[static_cast<std::size_t>(k)] = fleet.plan();
    EXPECT_FALSE(watch_in_vain(fleet, k, 0.2 * k));  // they end one after another
    verdicts[static_cast<std::size_t>(k)] = fleet.agree({0, false});
  });
  EXPECT_EQ(errors, Strings(3));
  const int first[] = {0, 1, 3};
  for (int k = 0; k < 3; ++k) {
    const FleetPlan& plan = plans[static_cast<std::size_t>(k)];
    EXPECT_EQ(plan.generation, 0);
    EXPECT_EQ(plan.world_size, 6);
    EXPECT_EQ(plan.first_rank, first[k]);
    EXPECT_EQ(plan.local_processes, k + 1);
    EXPECT_EQ(plan.master_addr, "127.0.0.1");
    EXPECT_EQ(plan.master_port, plans[0].master_port);
    EXPECT_NE(plan.master_port, server_.port());
    ASSERT_EQ(plan.machines.size(), 3u);
    EXPECT_EQ(plan.machines[2].hostname, "host2");
    EXPECT_FALSE(verdicts[static_cast<std::size_t>(k)].restart);
    EXPECT_EQ(verdicts[static_cast<std::size_t>(k)].code, 0);
  }
}

TEST_F(FleetTest, AFailureIsHeardAtOnceAndAllRestartOnceAndThenEnd) {
  std::vector<FleetVerdict> ends(3);
  const Strings errors = run(3, [&](int k) {
    Fleet fleet(options(k, 3));
    for (int generation = 0;; ++generation) {
      EXPECT_EQ(fleet.plan().generation, generation);
      const int culprit = generation == 0 ? 2 : 0;
      if (k == culprit) fleet.report(FleetEvent::failure, 137, concat("rank ", k, " died in ", generation));
      const testing::Stopwatch stopwatch;
      const auto event = watch(fleet, k, 60);
      EXPECT_LT(stopwatch.seconds(), stopwatch.limit(2));
      ASSERT_TRUE(event);
      EXPECT_EQ(event->kind, FleetEvent::failure);
      EXPECT_EQ(event->machine, culprit);
      EXPECT_EQ(event->code, 137);
      EXPECT_EQ(event->text, concat("rank ", culprit, " died in ", generation));
      const FleetVerdict verdict = fleet.agree({143, generation == 0});
      if (!verdict.restart) {
        EXPECT_EQ(generation, 1);
        ends[static_cast<std::size_t>(k)] = verdict;
        return;
      }
      EXPECT_EQ(generation, 0);
    }
  });
  EXPECT_EQ(errors, Strings(3));
  EXPECT_EQ(server_.generation(), 1);
  for (const FleetVerdict& end : ends) {
    EXPECT_EQ(end.code, 137);
    EXPECT_EQ(end.text, "rank 0 died in 1");
  }
}

TEST_F(FleetTest, OneWithoutRestartsLeftEndsTheJob) {
  const Strings errors = run(2, [&](int k) {
    Fleet fleet(options(k, 2));
    if (k == 1) fleet.report(FleetEvent::failure, 9, "x");
    ASSERT_TRUE(watch(fleet, k, 60));
    const FleetVerdict verdict = fleet.agree({1, k == 0});
    EXPECT_FALSE(verdict.restart);
    EXPECT_EQ(verdict.code, 9);
  });
  EXPECT_EQ(errors, Strings(2));
}

TEST_F(FleetTest, ARequestToStopReachesAll) {
  const Strings errors = run(2, [&](int k) {
    Fleet fleet(options(k, 2));
    if (k == 1) fleet.report(FleetEvent::stop, 143, "SIGTERM on host1");
    const auto event = watch(fleet, k, 60);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, FleetEvent::stop);
    const FleetVerdict verdict = fleet.agree({3, true});
    EXPECT_FALSE(verdict.restart);
    EXPECT_EQ(verdict.code, 3);
  });
  EXPECT_EQ(errors, Strings(2));
}

TEST_F(FleetTest, AMachineWithoutASignIsLost) {
  const double lost_seconds = testing::patience(1);
  Relay network(server_.port());
  std::atomic<int> over = 0;
  const Strings errors = run(3, [&](int k) {
    FleetOptions mine = options(k, 3);
    mine.lost_seconds = lost_seconds;
    if (k == 2) mine.store_port = network.port();
    Fleet fleet(mine);
    if (k == 2) {  // its host loses power
      network.cut();
      while (over < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    struct Ending {
      std::atomic<int>& over;
      ~Ending() { ++over; }
    } const ending{over};
    const testing::Stopwatch stopwatch;
    const auto event = watch(fleet, k, 60);
    ASSERT_TRUE(event) << k;
    EXPECT_EQ(event->kind, FleetEvent::lost);
    EXPECT_EQ(event->machine, 2);
    EXPECT_NE(event->text.find("machine 2 (host2) has not been heard from"), std::string::npos) << event->text;
    EXPECT_GT(stopwatch.seconds(), 0.9);
    EXPECT_LT(stopwatch.seconds(), lost_seconds + stopwatch.limit(2));
    const FleetVerdict verdict = fleet.agree({143, false});
    EXPECT_FALSE(verdict.restart);
    EXPECT_EQ(verdict.code, 1);
  });
  EXPECT_EQ(errors, Strings(3));
}

TEST_F(FleetTest, AnAgentThatEndsIsNamedAtOnce) {
  const Strings errors = run(3, [&](int k) {
    FleetOptions mine = options(k, 3);
    mine.lost_seconds = 3600;
    Fleet fleet(mine);
    if (k == 2) return;  // killed: the kernel closes its connection
    const auto event = watch(fleet, k, 60);
    ASSERT_TRUE(event) << k;
    EXPECT_EQ(event->kind, FleetEvent::lost);
    EXPECT_EQ(event->machine, 2);
    EXPECT_NE(event->text.find("machine 2 (host2) has left: its agent was killed"), std::string::npos) << event->text;
    const FleetVerdict verdict = fleet.agree({143, false});
    EXPECT_FALSE(verdict.restart);
    EXPECT_EQ(verdict.code, 1);
  });
  EXPECT_EQ(errors, Strings(3));
}

TEST_F(FleetTest, TheEndOfMachineZeroIsKnownAtOnce) {
  std::atomic<bool> joined{false};
  Strings said;
  const Strings errors = run(2, [&](int k) {
    FleetOptions mine = options(k, 2);
    mine.lost_seconds = 3600;
    if (k == 1) mine.say = [&](const std::string& line) { said.push_back(line); };
    std::optional<Fleet> fleet(std::in_place, mine);
    if (k == 0) {
      while (!joined) {
        server_.turn();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      fleet.reset();
      server_ = StoreServer(store_options(secret_));  // another port: nothing listens on the old one
      return;
    }
    joined = true;
    const auto event = watch(*fleet, k, 60);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, FleetEvent::lost);
    EXPECT_EQ(event->machine, 0);
    EXPECT_NE(event->text.find("Connection refused"), std::string::npos) << event->text;
    EXPECT_NE(event->text.find("machine 0 (host0), whose agent has exited"), std::string::npos) << event->text;
    EXPECT_FALSE(fleet->agree({143, true, event->text}).restart);
  });
  EXPECT_EQ(errors, Strings(2));
  ASSERT_EQ(said.size(), 1u) << join(said, "\n");
  EXPECT_EQ(said[0].find("the job ends with machine 0 (host0), whose agent hosted its store: start the agents"), 0u)
      << said[0];
}

TEST_F(FleetTest, ALinkThatComesBackInTimeIsSurvived) {
  Relay network(server_.port());
  std::atomic<bool> cut{false};
  const Strings errors = run(2, [&](int k) {
    FleetOptions mine = options(k, 2);
    mine.lost_seconds = 3600;  // a cut connection never delivers another answer
    if (k == 1) mine.store_port = network.port();
    Fleet fleet(mine);
    wait_for_all(k, 2);
    if (k == 0) {
      EXPECT_FALSE(watch_in_vain(fleet, k, 1));
      network.cut();
      cut = true;
      EXPECT_FALSE(watch_in_vain(fleet, k, 3));
      network.mend();
      const auto event = watch(fleet, k, 60);  // only the other machine's new connection can deliver it
      ASSERT_TRUE(event);
      EXPECT_EQ(event->kind, FleetEvent::failure);
      EXPECT_EQ(event->machine, 1);
    } else {
      while (!cut) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      fleet.report(FleetEvent::failure, 9, "x");
      while (watch_in_vain(fleet, k, 0.1) == std::nullopt) {
      }
    }
    EXPECT_EQ(fleet.agree({1, false}).code, 9);
  });
  EXPECT_EQ(errors, Strings(2));
}

TEST_F(FleetTest, ANewAgentInTheLostOnesPlaceLetsAllRestart) {
  FleetPlan again;
  const Strings errors = run(3, [&](int k) {
    FleetOptions mine = options(k, 3);
    mine.lost_seconds = 3600;
    std::optional<Fleet> fleet(std::in_place, mine);
    const FleetPlan first = fleet->plan();
    if (k == 2) {
      fleet.reset();
      mine.hostname = "host2b";
      fleet.emplace(mine);  // immediately, while machine 0 still considers the machine present
      again = fleet->plan();
    } else {
      const auto event = watch(*fleet, k, 60);
      ASSERT_TRUE(event);
      EXPECT_EQ(event->kind, FleetEvent::lost);
      const FleetVerdict verdict = fleet->agree({143, true});
      ASSERT_TRUE(verdict.restart) << verdict.text;
    }
    EXPECT_EQ(fleet->plan().generation, 1);
    EXPECT_EQ(fleet->plan().world_size, 6);
    EXPECT_EQ(fleet->plan().job_port, first.job_port);
    EXPECT_EQ(fleet->plan().machines[2].hostname, "host2b");
    EXPECT_FALSE(watch_in_vain(*fleet, k, 2)) << "the previous agent's end is not an event of this generation";
    EXPECT_FALSE(fleet->agree({0, true}).restart);
  });
  EXPECT_EQ(errors, Strings(3));
  EXPECT_EQ(again.generation, 1);
  EXPECT_EQ(again.first_rank, 3);
}

TEST_F(FleetTest, AMachineWhoseLinkWasAwayTooLongComesBackByItself) {
  Relay network(server_.port());
  const double lost_seconds = testing::patience(1);
  const Strings errors = run(2, [&](int k) {
    FleetOptions mine = options(k, 2);
    mine.lost_seconds = lost_seconds;
    if (k == 1) mine.store_port = network.port();
    Fleet fleet(mine);
    wait_for_all(k, 2);
    if (k == 0) network.cut();
    const auto event = watch(fleet, k, 60);
    ASSERT_TRUE(event) << k;
    EXPECT_EQ(event->kind, FleetEvent::lost);
    EXPECT_EQ(event->machine, 1 - k);
    if (k == 0) network.mend();
    const FleetVerdict verdict = fleet.agree({143, true});
    ASSERT_TRUE(verdict.restart) << verdict.text;
    EXPECT_EQ(fleet.plan().generation, 1);
    fleet.report(FleetEvent::stop, 143, "enough");
    ASSERT_TRUE(watch(fleet, k, 60));
    EXPECT_FALSE(fleet.agree({3, true}).restart);
  });
  EXPECT_EQ(errors, Strings(2));
}

TEST_F(FleetTest, MachineZeroThatWasCutOffTooLongGoesOnWithTheOthers) {
  Relay network(server_.port());  // carries all traffic to machine 0's address, including that of its own agent
  const double lost_seconds = testing::patience(1);
  std::atomic<int> told{0};
  const Strings errors = run(3, [&](int k) {
    FleetOptions mine = options(k, 3);
    mine.lost_seconds = lost_seconds;
    mine.store_port = network.port();
    Fleet fleet(mine);
    wait_for_all(k, 3);
    if (k == 0) network.cut();
    const auto event = watch(fleet, k, 60);
    ASSERT_TRUE(event) << k;
    EXPECT_EQ(event->kind, FleetEvent::lost);
    if (k == 0) EXPECT_GT(event->machine, 0) << event->text;
    if (k != 0) EXPECT_EQ(event->machine, 0) << event->text;
    ++told;
    if (k == 0) {
      while (told < 3) {
        server_.turn();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      network.mend();
    }
    const FleetVerdict verdict = fleet.agree({143, true});
    ASSERT_TRUE(verdict.restart) << verdict.text;
    EXPECT_EQ(fleet.plan().generation, 1);
    EXPECT_EQ(fleet.plan().world_size, 6);
    EXPECT_FALSE(fleet.agree({0, true}).restart);
  });
  EXPECT_EQ(errors, Strings(3));
}

TEST_F(FleetTest, AnEventIsToldOnce) {
  for (const bool told : {true, false}) {  // whether the agent reported it while its ranks ran
    server_ = StoreServer(store_options(secret_));
    Relay network(server_.port());
    const double lost_seconds = testing::patience(1);
    Strings said[2], events(2);
    const Strings errors = run(2, [&](int k) {
      FleetOptions mine = options(k, 2);
      mine.lost_seconds = lost_seconds;
      mine.say = [&, k](const std::string& line) { said[k].push_back(line); };
      if (k == 1) mine.store_port = network.port();
      Fleet fleet(mine);
      wait_for_all(k, 2);
      if (k == 0) network.cut();
      const auto event = watch(fleet, k, 60);
      ASSERT_TRUE(event) << k;
      events[static_cast<std::size_t>(k)] = event->text;
      if (k == 0) network.mend();
      ASSERT_TRUE(fleet.agree({143, true, told ? event->text : ""}).restart);
      fleet.agree({0, true});
    });
    in_ = 0;
    EXPECT_EQ(errors, Strings(2));
    for (const int k : {0, 1}) {
      int count = 0;
      for (const std::string& line : said[k])
        count += line.find(events[static_cast<std::size_t>(k)]) != std::string::npos;
      EXPECT_EQ(count, told ? 0 : 1) << join(said[k], "\n");
    }
  }
}

TEST_F(FleetTest, AMachineThatDoesNotComeBackEndsTheJob) {
  Strings said;
  const Strings errors = run(2, [&](int k) {
    FleetOptions mine = options(k, 2);
    mine.lost_seconds = 3600;
    mine.join_seconds = k == 0 ? testing::patience(2) : 3600;
    mine.say = [&, k](const std::string& line) {
      if (k == 0) said.push_back(line);
    };
    std::optional<Fleet> fleet(std::in_place, mine);
    if (k == 1) return;
    ASSERT_TRUE(watch(*fleet, k, 60));
    const FleetVerdict verdict = fleet->agree({143, true});
    EXPECT_FALSE(verdict.restart);
    EXPECT_EQ(verdict.code, 1);
  });
  EXPECT_EQ(errors, Strings(2));
  EXPECT_NE(join(said).find("for machine 1 (host1) to return"), std::string::npos) << join(said);
  EXPECT_NE(join(said).find("machine 1 (host1) did not return within"), std::string::npos) << join(said);
}

TEST_F(FleetTest, WithoutTheStoreAMachineStopsByItself) {
  std::atomic<bool> joined{false};
  std::atomic<bool> over{false};
  const double lost_seconds = testing::patience(1);
  const Strings errors = run(2, [&](int k) {
    FleetOptions mine = options(k, 2);
    mine.lost_seconds = lost_seconds;
    if (k == 0) {
      Fleet fleet(mine);
      // The last answers of the join are still unsent when machine 0 has joined.
      while (!joined && !over) {
        server_.turn();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // hangs: its store does not answer
      return;
    }
    struct Ending {  // machine 0 must not wait for a machine that failed
      std::atomic<bool>& over;
      ~Ending() { over = true; }
    } const ending{over};
    Fleet fleet(mine);
    joined = true;
    const testing::Stopwatch stopwatch;
    const auto event = watch(fleet, k, 60);
    EXPECT_LT(stopwatch.seconds(), lost_seconds + stopwatch.limit(3));
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, FleetEvent::lost);
    EXPECT_EQ(event->machine, 0);
    const FleetVerdict verdict = fleet.agree({143, false});
    EXPECT_FALSE(verdict.restart);
    EXPECT_EQ(verdict.code, 1);
    EXPECT_NE(verdict.text.find("lost the job's store"), std::string::npos) << verdict.text;
  });
  EXPECT_EQ(errors, Strings(2));
}

TEST_F(FleetTest, MissingMachinesAreListed) {
  Strings said;
  const Strings errors = run(1, [&](int) {
    FleetOptions mine = options(0, 4);
    mine.join_seconds = testing::patience(1);
    mine.first_notice_seconds = 0.2 * mine.join_seconds;
    mine.notice_seconds = 0.3 * mine.join_seconds;
    mine.say = [&](const std::string& line) { said.push_back(line); };
    Fleet fleet(mine);
  });
  EXPECT_GE(said.size(), 2u);
  EXPECT_NE(said.back().find("3 of 4 machines missing: machine 1, 2, 3"), std::string::npos) << said.back();
  EXPECT_NE(errors[0].find("not all machines have joined: 3 of 4 machines missing"), std::string::npos) << errors[0];
}

TEST_F(FleetTest, WrongRanksAndNumbersAreRefused) {
  // Two agents with the same machine rank: one of them is refused.
  std::atomic<int> taken{0};
  const Strings errors = run(3, [&](int k) {
    FleetOptions mine = options(k == 2 ? 1 : k, 2);
    mine.hostname = concat("host", k);
    try {
      Fleet fleet(mine);
      while (taken == 0) watch(fleet, k, 0.05);  // keeps the job running
      fleet.agree({0, false});
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("machine rank 1 is taken by host"), std::string::npos) << error.what();
      ++taken;
    }
  });
  EXPECT_EQ(errors, Strings(3));
  EXPECT_EQ(taken, 1);
}

TEST_F(FleetTest, AnotherNumberOfMachinesIsRefusedOnAll) {
  for (const int other : {3, 4}) {
    server_ = StoreServer(store_options(secret_));
    const Strings errors = run(2, [&](int k) { Fleet fleet(options(k, k == 0 ? 2 : other)); });
    for (const std::string& error : errors) {
      EXPECT_NE(error.find(concat("was started with --num_machines ", other)), std::string::npos) << error;
    }
  }
}

TEST_F(FleetTest, AWrongSecretIsNotLetIn) {
  const Strings errors = run(2, [&](int k) {
    FleetOptions mine = options(k, 2);
    mine.join_seconds = testing::patience(1.5);
    if (k == 1) mine.secret = make_secret();
    Fleet fleet(mine);
  });
  EXPECT_NE(errors[0].find("not all machines have joined"), std::string::npos) << errors[0];
  EXPECT_FALSE(errors[1].empty());
}

TEST_F(FleetTest, GivingUpEndsTheWait) {
  const Strings errors = run(1, [&](int) {
    FleetOptions mine = options(0, 2);
    const testing::Stopwatch stopwatch;
    mine.give_up = [&] { return stopwatch.seconds() > 0.2; };
    Fleet fleet(mine);
  });
  EXPECT_NE(errors[0].find("stopped on request"), std::string::npos) << errors[0];
}

TEST(FleetWire, RecordsComeBackAndRubbishIsRefused) {
  namespace wire = fleet_wire;
  FleetPlan plan;
  plan.generation = 4;
  plan.master_addr = "fe80::1";
  plan.master_port = 77;
  plan.job_port = 78;
  plan.machines = {{"a", 2, 0, "t"}, {"b", 1, 2, "u"}};
  const FleetPlan back = wire::read_plan(wire::write(plan), 1);
  EXPECT_EQ(back.world_size, 3);
  EXPECT_EQ(back.first_rank, 2);
  EXPECT_EQ(back.master_addr, "fe80::1");
  EXPECT_EQ(back.job_port, 78);
  EXPECT_EQ(back.machines[1].token, "u");
  const FleetEvent event = wire::read_event(wire::write(FleetEvent{FleetEvent::lost, 3, 1, "two\nlines"}));
  EXPECT_EQ(event.text, "two\nlines");
  EXPECT_EQ(event.kind, FleetEvent::lost);
  for (const char* bad : {"", "x", "1\n", "9\n0\n0\n", "-1\n0\n1\nx", "0\n0\n256\n"}) {
    EXPECT_THROW(wire::read_event(bad), Error) << bad;
  }
  for (const char* bad : {"", "0\na\n1\n1\n2\n1\nt\nh\n", "0\na\n70000\n1\n1\n1\nt\nh\n", "0\na\n1\n1\n99999999\n",
                          "0\na\n1\n1\n1\n0\nt\nh\n", "0\na\n1\n0\n1\n1\nt\nh\n"}) {
    EXPECT_THROW(wire::read_plan(bad, 0), Error) << bad;
  }
  EXPECT_THROW(wire::read_plan(wire::write(plan), 2), Error);
}

}  // namespace
}  // namespace tessera::launch
