// Ranks as threads over an in-memory store: joining, missing ranks, different builds, leaving.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <tests/error_of.h>
#include <tests/stopwatch.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/gloo.h>
#include <tessera/comm/rendezvous.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iomanip>
#include <set>
#include <sstream>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::comm;
using std::chrono::milliseconds;

// Each rank's rendezvous error ("" = joined), prefixed with its exit code.
std::vector<std::string> join(int size, const std::set<int>& absent, const std::function<std::string(int)>& build,
                              milliseconds timeout) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    if (absent.count(rank) != 0) continue;
    threads.emplace_back([&, rank] {
      launch::RankEnvironment environment;
      environment.rank = rank;
      environment.world_size = size;
      try {
        rendezvous(*store, environment, build(rank), timeout);
      } catch (const Error& error) {
        results[static_cast<std::size_t>(rank)] =
            concat("exit code ", static_cast<int>(error.exit_code()), ": ", error.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return results;
}

const auto same_build = [](int) { return build_text(); };

TEST(Rendezvous, all_ranks_join) {
  for (const auto& result : join(4, {}, same_build, milliseconds(600'000))) EXPECT_EQ(result, "");
}

TEST(Rendezvous, every_rank_is_told_who_is_missing) {
  const auto results = join(5, {2, 4}, same_build, tessera::testing::patience(milliseconds(200)));
  for (const int rank : {0, 1, 3}) {
    const std::string& text = results[static_cast<std::size_t>(rank)];
    EXPECT_NE(text.find("3 of 5 ranks joined within "), std::string::npos) << text;
    EXPECT_NE(text.find(" s; missing: rank 2, 4"), std::string::npos) << text;
    EXPECT_EQ(text.find("exit code 1: "), 0U) << text;  // a restart may help
  }
}

TEST(Rendezvous, variables_that_were_left_in_the_environment_are_named) {
  launch::RankEnvironment environment;
  environment.world_size = 2;
  for (const char* left : {"", "RANK=0, WORLD_SIZE=2"}) {
    environment.unvouched = left;
    const std::string text = tessera::testing::error_of<Error>(
        [&] { rendezvous(*c10::make_intrusive<c10d::HashStore>(), environment, build_text(), milliseconds(10)); });
    EXPECT_NE(text.find("missing: rank 1"), std::string::npos) << text;
    EXPECT_EQ(text.find(concat(left, " are set in the environment")) != std::string::npos, *left != 0) << text;
    EXPECT_EQ(text.find("unset them") != std::string::npos, *left != 0) << text;
  }
}

TEST(Rendezvous, another_build_is_refused_by_all) {
  const auto results =
      join(3, {}, [](int rank) { return rank == 2 ? "tessera 9.9" : build_text(); }, milliseconds(600'000));
  for (const auto& text : results) {
    EXPECT_NE(text.find("rank 2 runs a different build"), std::string::npos) << text;
    EXPECT_NE(text.find("tessera 9.9"), std::string::npos) << text;
    EXPECT_EQ(text.find("exit code 2: "), 0U) << text;  // a restart would fail in the same way
  }
}

TEST(Rendezvous, a_rank_that_joins_twice_is_refused) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const std::string other = "other-host pid 7";
  store->set("join/1/process", std::vector<std::uint8_t>(other.begin(), other.end()));
  launch::RankEnvironment environment;
  environment.rank = 1;
  environment.world_size = 2;
  try {
    rendezvous(*store, environment, build_text(), milliseconds(100));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("joined twice: other-host pid 7"), std::string::npos) << error.what();
  }
}

TEST(Leave, rank_0_goes_last_and_names_who_did_not_come) {
  const milliseconds timeout = tessera::testing::patience(milliseconds(300));
  for (const bool absent : {false, true}) {
    auto store = c10::make_intrusive<c10d::HashStore>();
    std::atomic<int> gone{0};
    std::vector<std::thread> threads;
    for (int rank = 1; rank < 3; ++rank) {
      if (absent && rank == 2) continue;
      threads.emplace_back([&, rank] {
        leave(*store, rank, 3, timeout);
        ++gone;
      });
    }
    const std::vector<int> missing = leave(*store, 0, 3, timeout);
    EXPECT_EQ(missing, absent ? std::vector<int>{2} : std::vector<int>{});
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(gone, absent ? 1 : 2);
  }
}

TEST(Store, a_port_in_use_is_an_input_error_that_names_it) {
  // Another program's listening socket, on a port chosen by the kernel.
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  launch::RankEnvironment environment;
  environment.world_size = 2;
  environment.master_port = ntohs(address.sin_port);
  try {
    open_store(environment, milliseconds(2000));
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(concat("127.0.0.1:", environment.master_port)), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("MASTER_PORT"), std::string::npos) << error.what();
  }
  close(fd);
}

TEST(Store, a_one_host_job_listens_on_loopback_only) {
  launch::RankEnvironment environment;
  environment.world_size = 2;
  environment.master_port = 0;  // chosen by the kernel; only the server is needed here
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(fd);  // free again: this test uses no other kernel-chosen ports
  environment.master_port = ntohs(address.sin_port);
  const auto store = open_store(environment, milliseconds(600'000));
  std::ifstream table("/proc/self/net/tcp");
  std::ostringstream port;
  port << ':' << std::uppercase << std::hex << std::setw(4) << std::setfill('0') << environment.master_port;
  bool loopback = false;
  for (std::string line; std::getline(table, line);) {
    if (line.find(" 0A ") == std::string::npos) continue;  // LISTEN
    loopback = loopback || line.find("0100007F" + port.str()) != std::string::npos;
    EXPECT_EQ(line.find("00000000" + port.str()), std::string::npos) << "listens on every interface: " << line;
  }
  EXPECT_TRUE(loopback);
}

TEST(Store, nobody_serves_it) {
  launch::RankEnvironment environment;
  environment.rank = 1;
  environment.world_size = 2;
  environment.master_port = 1;  // reserved, without a listener
  try {
    open_store(environment, milliseconds(300));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 cannot reach the rendezvous store at 127.0.0.1:1"),
              std::string::npos)
        << error.what();
  }
}

TEST(GlooInterface, loopback_for_jobs_of_one_host) {
  EXPECT_EQ(gloo_interface("localhost", 1, false).address, "127.0.0.1");
  EXPECT_EQ(gloo_interface("127.0.1.1", 1, false).address, "127.0.0.1");
  EXPECT_EQ(gloo_interface("node0.example", 1, true).address, "127.0.0.1");
}

TEST(GlooInterface, the_variable_names_the_interface) {
  setenv("GLOO_SOCKET_IFNAME", "eth7", 1);
  EXPECT_EQ(gloo_interface("10.1.2.3", 1, false).name, "eth7");
  unsetenv("GLOO_SOCKET_IFNAME");
}

}  // namespace
