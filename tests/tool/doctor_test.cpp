// tessera doctor as users start it: alone, and as a job of two machines.

#include "program.h"

#include <tessera/launch/agent/ports.h>

#include <thread>

namespace tessera::testing {
namespace {

class DoctorTest : public ToolTest {
 protected:
  /// Runs one agent per machine, both on this host, with two ranks each; returns the first agent's output.
  launch::Captured two_machines(const Strings& doctor) {
    const std::string port = std::to_string(launch::choose_port("127.0.0.1"));
    const auto machine = [&](int rank) {
      return tessera(Strings{"launch", "--num_machines", "2", "--machine_rank", std::to_string(rank), "--num_processes",
                             "4", "--main_process_ip", "127.0.0.1", "--main_process_port", port, "--trusted_network",
                             "--no_prefix", program, "doctor", "--folder", at(".")} +
                     doctor);
    };
    launch::Captured second;
    std::jthread other([&] { second = machine(1); });
    launch::Captured first = machine(0);
    other.join();
    EXPECT_EQ(second.exit_code, first.exit_code) << second.err;
    EXPECT_EQ(second.out, "") << "the first rank speaks for all";
    return first;
  }
};

TEST_F(DoctorTest, OneMachine) {
  const auto alone = tessera({"doctor", "--folder", at("."), "--json"});
  EXPECT_EQ(parse_json(alone.out, "doctor").at("findings").items().front().at("check").as_string(), "processors");
  const auto refused = tessera({"doctor", "--bad_hosts", at("bad")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("tessera launch"), std::string::npos) << refused.err;
}

TEST_F(DoctorTest, TwoMachinesAreComparedAndBadOnesRemembered) {
  write_file_atomically(at("bad"), "far1  # broken fan\n");
  const auto good = two_machines({"--json", "--bad_hosts", at("bad")});
  ASSERT_NE(good.out, "") << good.err;
  const Value found = parse_json(good.out, "doctor");
  ASSERT_EQ(found.at("hosts").items().size(), 2U);
  ASSERT_EQ(found.at("links").items().size(), 1U);
  EXPECT_GT(found.at("links").items()[0].at("there").as_real(), 1e6);
  EXPECT_TRUE(read_file(at("bad")).starts_with("far1  # broken fan\n"));

  write_file_atomically(at("bad"), "{}\n");
  const auto other_file = two_machines({"--bad_hosts", at("bad")});
  EXPECT_NE(other_file.exit_code, 0);
  EXPECT_NE(other_file.err.find("bad:1: '{}' is not a host name"), std::string::npos) << other_file.err;
  EXPECT_EQ(read_file(at("bad")), "{}\n");
}

}  // namespace
}  // namespace tessera::testing
