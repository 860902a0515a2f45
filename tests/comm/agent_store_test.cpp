// The agent's store through c10d's interface: everything that Gloo and NCCL rely on, and groups of forked ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/c10d/agent_store.h>
#include <tessera/comm/rendezvous.h>
#include <tests/distributed/harness.h>
#include <tests/launch/store_under_test.h>
#include <tests/stopwatch.h>

#include <chrono>
#include <future>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::comm;
using launch::StoreUnderTest;
using std::chrono::milliseconds;

c10::intrusive_ptr<AgentStore> adaptor(const StoreUnderTest& store, milliseconds timeout = milliseconds(60'000)) {
  return c10::make_intrusive<AgentStore>(std::make_shared<launch::StoreClient>(store.client_options()), timeout);
}
std::vector<std::uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

TEST(AgentStore, behaves_as_c10d_expects) {
  StoreUnderTest host;
  const auto own = adaptor(host);
  for (const c10::intrusive_ptr<c10d::Store>& store : std::initializer_list<c10::intrusive_ptr<c10d::Store>>{
           own, own->clone(), c10::make_intrusive<c10d::PrefixStore>("group/1", own)}) {
    store->set("key", bytes("value"));
    EXPECT_EQ(store->get_to_str("key"), "value");
    EXPECT_TRUE(store->check({"key"}));
    EXPECT_FALSE(store->check({"key", "absent"}));
    EXPECT_EQ(store->add("count", 3), 3);
    EXPECT_EQ(store->add("count", 4), 7);
    EXPECT_EQ(store->get_to_str("count"), "7");
    EXPECT_EQ(store->compareSet("owner", "", "me"), "me");
    EXPECT_EQ(store->compareSet("owner", "", "you"), "me");
    EXPECT_EQ(store->compareSet("nobody", "x", "y"), "x");
    EXPECT_TRUE(store->hasExtendedApi());
    store->append("key", bytes("+"));
    store->multiSet({"a", "b"}, {bytes("1"), bytes("2")});
    EXPECT_EQ(store->multiGet({"b", "key"}), (std::vector<std::vector<std::uint8_t>>{bytes("2"), bytes("value+")}));
    for (const char* key : {"key", "count", "owner", "a", "b"}) EXPECT_TRUE(store->deleteKey(key)) << key;
    EXPECT_FALSE(store->deleteKey("key"));
    EXPECT_EQ(store->getNumKeys(), 0);
  }
}

TEST(AgentStore, waits_and_timeouts) {
  StoreUnderTest host;
  const auto store = adaptor(host, milliseconds(200));
  const tessera::testing::Stopwatch watch;
  try {
    store->get("never");
    ADD_FAILURE() << "no error";
  } catch (const c10::DistStoreError& error) {
    EXPECT_NE(std::string(error.what_without_backtrace()).find("nobody set key never"), std::string::npos)
        << error.what();
  }
  EXPECT_GE(watch.seconds(), 0.19);
  EXPECT_LT(watch.seconds(), watch.limit(8)) << "the store's own timeout is a minute";
  EXPECT_THROW(store->wait({"never"}, milliseconds(50)), c10::DistStoreError);
  store->setTimeout(milliseconds(600'000));
  auto waited = std::async(std::launch::async, [&] { return store->get_to_str("late"); });
  auto endless = std::async(std::launch::async, [&] { store->wait({"late"}, c10d::Store::kNoTimeout); });
  std::this_thread::sleep_for(milliseconds(100));
  store->set("late", bytes("came"));  // the same store: waiting threads do not block it
  EXPECT_EQ(waited.get(), "came");
  endless.get();
}

TEST(AgentStore, a_lost_store_is_a_network_error_that_names_it) {
  StoreUnderTest host;
  const auto store = adaptor(host);
  const std::string where = concat("127.0.0.1:", host.port());
  host.stop();
  try {
    store->set("key", bytes("value"));
    ADD_FAILURE() << "no error";
  } catch (const c10::DistNetworkError& error) {
    EXPECT_NE(std::string(error.what()).find(where), std::string::npos) << error.what();
  }
}

launch::RankEnvironment rank_of(const StoreUnderTest& host, const launch::UniqueFd& secret, int rank, int size) {
  launch::RankEnvironment environment;
  environment.rank = rank;
  environment.world_size = size;
  environment.launcher = "tessera";
  environment.store_address = "127.0.0.1";
  environment.store_port = host.port();
  environment.secret_fd = secret.get();
  return environment;
}

TEST(AgentStore, open_store_takes_the_environment_and_refuses_an_old_generation) {
  StoreUnderTest host({}, 2);
  const launch::UniqueFd secret = launch::secret_to_fd(host.secret());
  launch::RankEnvironment environment = rank_of(host, secret, 0, 2);
  environment.generation = 2;
  open_store(environment, milliseconds(600'000))->set("key", bytes("value"));
  EXPECT_EQ(host.with([](launch::StoreServer& server) { return server.get("tessera/2/key"); }), "value");
  environment.generation = 1;
  environment.rank = 1;
  try {
    open_store(environment, milliseconds(600'000));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("generation 1"), std::string::npos) << text;
    EXPECT_NE(text.find("generation 2"), std::string::npos) << text;
  }
}

TEST(AgentStore, ranks_with_other_facts_are_named_within_a_second_even_when_one_is_missing) {
  StoreUnderTest host;
  const launch::UniqueFd secret = launch::secret_to_fd(host.secret());
  std::vector<std::future<std::pair<std::string, double>>> ranks;
  const tessera::testing::Stopwatch watch;
  for (int rank = 0; rank < 4; ++rank) {  // 4 ranks of 5
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const tessera::testing::Stopwatch own;
      const auto environment = rank_of(host, secret, rank, 5);
      try {
        const auto store = open_store(environment, milliseconds(600'000));
        rendezvous(*store, environment, build_text(), milliseconds(600'000),
                   {{"config", "c"}, {"seed", rank == 2 ? "7" : "42"}});
      } catch (const Error& error) {
        return std::pair(std::string(error.what()), own.seconds());
      }
      return std::pair(std::string("no error"), 0.0);
    }));
  }
  for (auto& rank : ranks) {
    const auto [message, seconds] = rank.get();
    EXPECT_NE(message.find("seed is '42' on ranks 0"), std::string::npos) << message;
    EXPECT_NE(message.find("but '7' on rank 2"), std::string::npos) << message;
    EXPECT_EQ(message.find("config"), std::string::npos) << message;
    EXPECT_LT(seconds, watch.limit(1));
  }
}

TEST(AgentStore, the_missing_are_listed_after_five_seconds) {
  StoreUnderTest host;
  const launch::UniqueFd secret = launch::secret_to_fd(host.secret());
  ::testing::internal::CaptureStderr();
  std::vector<std::future<void>> ranks;
  for (const int rank : {1, 2}) {  // 2 ranks of 4: rank 0 is missing, so rank 1 reports
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const auto environment = rank_of(host, secret, rank, 4);
      const auto store = open_store(environment, milliseconds(600'000));
      EXPECT_THROW(rendezvous(*store, environment, build_text(), milliseconds(600)), Error);  // and 5 s more
    }));
  }
  for (auto& rank : ranks) rank.get();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("waited "), std::string::npos) << log;
  EXPECT_NE(log.find("for ranks 0, 3 of 4; here: ranks 1, 2 on "), std::string::npos) << log;
  EXPECT_EQ(log.find("waited"), log.rfind("waited")) << log;
}

/// Runs the store in its own process, because the test process may have only one thread when it forks ranks.
class StoreProcess {
 public:
  StoreProcess() {
    const launch::Secret secret = launch::make_secret();
    secret_ = launch::secret_to_fd(secret);
    launch::StoreOptions options;
    options.secret = secret;
    launch::StoreServer server(options);
    port_ = server.port();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) {
        pollfd fd{server.fd(), POLLIN, 0};
        poll(&fd, 1, 50);
        server.turn();
      }
    }
  }
  ~StoreProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void put_into(launch::RankEnvironment& environment) const {
    environment.store_address = "127.0.0.1";
    environment.store_port = port_;
    environment.secret_fd = secret_.get();
  }

 private:
  launch::UniqueFd secret_;
  int port_ = 0;
  pid_t pid_ = -1;
};

TEST(AgentStore, gloo_groups_of_four_forked_ranks_meet_through_it) {
  const StoreProcess host;
  tessera::testing::RankOptions options;
  options.timeout_s = 60;
  options.init.backend = "gloo";
  options.before_init = [&](launch::RankEnvironment& environment, InitOptions&) { host.put_into(environment); };
  tessera::testing::run_ranks(
      4,
      [](comm::World& world) {
        at::Tensor tensor = at::full({1000}, world.rank() + 1, at::kFloat);
        world.group().all_reduce(tensor).wait();
        EXPECT_EQ(tensor[999].item<float>(), 10);
        const auto pair = world.new_group({0, 3}, "ends");
        const auto inner = world.new_group({1, 2}, "inner");
        at::Tensor one = at::ones({3});
        (world.rank() % 3 == 0 ? pair : inner).all_reduce(one).wait();
        EXPECT_EQ(one[0].item<float>(), 2);
      },
      options);
}

TEST(AgentStore, a_rank_with_another_secret_does_not_join) {
  const StoreProcess host;
  tessera::testing::RankOptions options;
  options.timeout_s = 20;
  options.init.backend = "gloo";
  options.before_init = [&](launch::RankEnvironment& environment, InitOptions&) {
    host.put_into(environment);
    if (environment.rank == 1) environment.secret_fd = launch::secret_to_fd(launch::make_secret()).release();
  };
  const auto outcomes = tessera::testing::run_ranks_outcomes(2, [](comm::World&) {}, options);
  EXPECT_NE(outcomes[1].error.find("does not have that job's secret"), std::string::npos) << outcomes[1].error;
  EXPECT_FALSE(outcomes[0].ok);
}

}  // namespace
