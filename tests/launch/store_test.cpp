#include <gtest/gtest.h>

#include "store_under_test.h"

#include <tessera/launch/store/store_wire.h>
#include <tests/error_of.h>
#include <tests/stopwatch.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace tessera::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using tessera::testing::error_of;

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Store, SetGetCheckErase) {
  StoreUnderTest store;
  StoreClient a = store.client(), b = store.client();
  EXPECT_EQ(b.find("key"), std::nullopt);
  EXPECT_FALSE(b.check({"key"}));
  a.set("key", "value");
  EXPECT_EQ(b.get("key", milliseconds(0)), "value");
  EXPECT_TRUE(b.check({"key"}));
  EXPECT_FALSE(b.check({"key", "other"}));
  const std::string binary("\0\xff\n", 3);
  a.set(binary, binary);
  EXPECT_EQ(b.find(binary), binary);
  EXPECT_EQ(a.num_keys(), 2);
  EXPECT_TRUE(a.erase("key"));
  EXPECT_FALSE(a.erase("key"));
  EXPECT_EQ(b.find("key"), std::nullopt);
  a.set("empty", "");
  EXPECT_EQ(b.find("empty"), "");
}

TEST(Store, AddAppendCompareSetMulti) {
  StoreUnderTest store;
  StoreClient client = store.client();
  EXPECT_EQ(client.add("n", 5), 5);
  EXPECT_EQ(client.add("n", -7), -2);
  EXPECT_EQ(client.find("n"), "-2");
  client.set("text", "abc");
  expect_says(error_of<Error>([&] { client.add("text", 1); }), "not a number");
  client.set("big", "9223372036854775807");
  expect_says(error_of<Error>([&] { client.add("big", 1); }), "64-bit");
  EXPECT_EQ(client.add("big", 0), 9223372036854775807);  // the connection has survived the refusals
  client.append("text", "def");
  client.append("new", "1");
  EXPECT_EQ(client.find("text"), "abcdef");
  EXPECT_EQ(client.find("new"), "1");
  EXPECT_EQ(client.compare_set("c", "x", "y"), "x");  // absent, while a value is expected: not set
  EXPECT_EQ(client.find("c"), std::nullopt);
  EXPECT_EQ(client.compare_set("c", "", "first"), "first");
  EXPECT_EQ(client.compare_set("c", "", "second"), "first");
  EXPECT_EQ(client.compare_set("c", "first", "second"), "second");
  client.multi_set({"p/1", "p/2", "q"}, {"one", "two", "three"});
  EXPECT_EQ(client.multi_get({"q", "p/1"}, milliseconds(0)), (std::vector<std::string>{"three", "one"}));
  EXPECT_EQ(client.list("p/"), (std::vector<std::string>{"p/1", "p/2"}));
  EXPECT_EQ(client.list("absent").size(), 0u);
}

TEST(Store, AWaitEndsWithTheLastKey) {
  StoreUnderTest store;
  StoreClient waiter = store.client(), setter = store.client();
  setter.set("a", "1");
  auto waited = std::async(std::launch::async, [&] {
    waiter.wait({"a", "b", "c"}, milliseconds(600'000));
    return waiter.multi_get({"a", "b", "c"}, milliseconds(0));
  });
  setter.set("c", "3");
  EXPECT_EQ(waited.wait_for(milliseconds(100)), std::future_status::timeout);
  setter.add("b", 2);
  EXPECT_EQ(waited.get(), (std::vector<std::string>{"1", "2", "3"}));
}

TEST(Store, ATimeoutNamesTheMissingKeysAndLeavesTheStoreWell) {
  StoreUnderTest store;
  StoreClient client = store.client();
  client.set("there", "1");
  const testing::Stopwatch watch;
  const std::string message =
      error_of<StoreTimeout>([&] { client.wait({"there", "missing/1", "missing/2"}, milliseconds(200)); });
  EXPECT_GE(watch.seconds(), 0.19);
  EXPECT_LT(watch.seconds(), watch.limit(5));
  expect_says(message, "missing/1, missing/2");
  expect_says(message, concat("127.0.0.1:", store.port()));
  expect_says(message, "0.2 s");
  EXPECT_EQ(message.find("there,"), std::string::npos) << message;
  EXPECT_EQ(client.find("there"), "1");
}

TEST(Store, AThreadThatWaitsDoesNotHoldUpTheOthers) {
  StoreUnderTest store;
  StoreClient client = store.client();
  auto waited = std::async(std::launch::async, [&] { return client.get("late", milliseconds(600'000)); });
  std::this_thread::sleep_for(milliseconds(50));
  client.set("late", "came");  // by the same client
  EXPECT_EQ(waited.get(), "came");
}

TEST(Store, ManyThreadsOfOneClient) {
  StoreUnderTest store;
  StoreClient client = store.client();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) client.add("count", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client.find("count"), "800");
}

TEST(Store, LargeValues) {
  StoreLimits limits;
  limits.value_bytes = 3 << 20;
  limits.memory_bytes = 40 << 20;
  StoreUnderTest store(limits);
  StoreClient client = store.client();
  std::string value(3 << 20, 0);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 2654435761u >> 13);
  client.set("large", value);
  EXPECT_EQ(client.find("large"), value);
  expect_says(error_of<Error>([&] { client.set("larger", value + "x"); }), "at most 3145728");
  expect_says(error_of<Error>([&] { client.set("huge", std::string(10 << 20, 'x')); }), "accepts at most");
  expect_says(error_of<Error>([&] { client.set(std::string(1025, 'k'), "x"); }), "a key of 1025 bytes");
  EXPECT_EQ(client.find("larger"), std::nullopt);
}

TEST(Store, ItsMemoryIsLimited) {
  StoreLimits limits;
  limits.value_bytes = 1 << 20;
  limits.memory_bytes = 8 << 20;
  StoreUnderTest store(limits);
  StoreClient client = store.client();
  const std::string value(1 << 20, 'x');
  std::string message = "never refused";
  int kept = 0;
  for (; kept < 20; ++kept) {
    try {
      client.set(concat("key", kept), value);
    } catch (const StoreLost&) {
      throw;
    } catch (const Error& error) {
      message = error.what();
      break;
    }
  }
  expect_says(message, "no room");
  EXPECT_GE(kept, 5);
  EXPECT_LE(store.with([](StoreServer& server) { return server.memory_bytes(); }), limits.memory_bytes);
  client.erase("key0");
  client.erase("key1");
  client.set("again", value);
  for (const std::string& key : client.list("")) client.erase(key);
  EXPECT_EQ(store.with([](StoreServer& server) { return server.memory_bytes(); }), 0u);
}

TEST(Store, TheHostsOwnHand) {
  StoreUnderTest store;
  StoreClient client = store.client();
  auto waited = std::async(std::launch::async, [&] { return client.get("from the agent", milliseconds(600'000)); });
  std::this_thread::sleep_for(milliseconds(20));
  store.with([](StoreServer& server) { server.set("from the agent", "hello"); });
  EXPECT_EQ(waited.get(), "hello");
  client.set("p/rank", "5");
  EXPECT_EQ(store.with([](StoreServer& server) { return server.list("p/"); }), std::vector<std::string>{"p/rank"});
  EXPECT_EQ(store.with([](StoreServer& server) { return server.get("p/rank"); }), "5");
  EXPECT_EQ(store.with([](StoreServer& server) { return server.add("p/rank", 1); }), 6);
  EXPECT_TRUE(store.with([](StoreServer& server) { return server.erase("p/rank"); }));
}

TEST(Store, AnOldGenerationIsRefused) {
  StoreUnderTest store({}, 3);
  StoreClient rank = store.client(3), agent = store.client();
  rank.set(generation_prefix(3) + "key", "old");
  rank.set("shared", "stays");
  StoreClient waiting = store.client(3);
  auto waited = std::async(std::launch::async,
                           [&] { return error_of<StoreLost>([&] { waiting.get("never", milliseconds(600'000)); }); });
  std::this_thread::sleep_for(milliseconds(50));
  const testing::Stopwatch watch;
  store.with([](StoreServer& server) { server.set_generation(4); });
  const std::string told = waited.get();
  EXPECT_LT(watch.seconds(), watch.limit(2));
  for (const std::string& message : {told, error_of<StoreLost>([&] { rank.set("shared", "mine"); }),
                                     error_of<StoreLost>([&] { store.client(3); })}) {
    expect_says(message, "generation 3");
    expect_says(message, "at generation 4");
  }
  EXPECT_EQ(agent.find("shared"), "stays");
  EXPECT_EQ(agent.find(generation_prefix(3) + "key"), std::nullopt);
  store.client(4).set("shared", "new");
  EXPECT_EQ(agent.find("shared"), "new");
}

TEST(Store, AWrongSecretIsNamed) {
  StoreUnderTest store;
  StoreClientOptions options = store.client_options();
  options.secret = make_secret();
  const std::string message = error_of<StoreLost>([&] { StoreClient client(options); });
  expect_says(message, concat("127.0.0.1:", store.port()));
  expect_says(message, "does not have that job's secret");
  EXPECT_EQ(store.counters().authenticated, 0u);
}

TEST(Store, AStoreThatIsNotThereIsNamed) {
  StoreUnderTest store;
  StoreClientOptions options = store.client_options();
  options.connect_timeout = milliseconds(300);
  store.stop();
  const testing::Stopwatch watch;
  const std::string message = error_of<StoreLost>([&] { StoreClient client(options); });
  EXPECT_LT(watch.seconds(), watch.limit(5));
  expect_says(message, concat("127.0.0.1:", store.port()));
  expect_says(message, "Connection refused");
}

TEST(Store, AStoreThatComesLateIsWaitedFor) {
  StoreOptions late;
  {
    StoreUnderTest first;  // to find a free port
    late.port = first.port();
  }
  late.secret = make_secret();
  StoreClientOptions options;
  options.host = "127.0.0.1";
  options.port = late.port;
  options.secret = late.secret;
  auto client = std::async(std::launch::async, [&] { return StoreClient(options).find("x"); });
  std::this_thread::sleep_for(milliseconds(150));
  StoreServer server(late);
  while (client.wait_for(milliseconds(1)) != std::future_status::ready) server.turn();
  EXPECT_EQ(client.get(), std::nullopt);
}

TEST(Store, ALostStoreStaysLost) {
  StoreUnderTest store;
  StoreClient client = store.client();
  auto waited = std::async(std::launch::async,
                           [&] { return error_of<StoreLost>([&] { client.get("never", milliseconds(600'000)); }); });
  std::this_thread::sleep_for(milliseconds(50));
  store.stop();
  const std::string first = waited.get();
  expect_says(first, "closed the connection");
  EXPECT_EQ(error_of<StoreLost>([&] { client.set("x", "y"); }), first);
}

TEST(Store, AnInterruptionEndsAWait) {
  StoreUnderTest store;
  StoreClientOptions options = store.client_options();
  std::atomic<bool> stop = false;
  options.interrupted = [&]() -> std::optional<std::string> {
    return stop ? std::optional<std::string>("the agent asks for the end") : std::nullopt;
  };
  StoreClient client(options);
  auto waited = std::async(std::launch::async,
                           [&] { return error_of<StoreLost>([&] { client.get("never", milliseconds(600'000)); }); });
  std::this_thread::sleep_for(milliseconds(50));
  const testing::Stopwatch watch;
  stop = true;
  expect_says(waited.get(), "the agent asks for the end");
  EXPECT_LT(watch.seconds(), watch.limit(2));
  client.set("last words", "are possible");
  EXPECT_EQ(client.find("last words"), "are possible");
}

TEST(Store, APortInUseAndAForeignAddressAreNamed) {
  StoreUnderTest store;
  StoreOptions options;
  options.secret = make_secret();
  options.port = store.port();
  expect_says(error_of<InputError>([&] { StoreServer server(options); }), concat("127.0.0.1:", store.port()));
  options.port = 0;
  options.address = "192.0.2.1";  // reserved for documentation: no host has this address
  expect_says(error_of<InputError>([&] { StoreServer server(options); }), "192.0.2.1");
  options.address = "127.0.0.1";
  options.secret = {};
  expect_says(error_of<InputError>([&] { StoreServer server(options); }), "secret");
}

TEST(Store, AWillIsExecutedWhenItsClientCloses) {
  StoreUnderTest store;
  StoreClient watcher = store.client();
  std::optional<StoreClient> mortal = store.client();
  mortal->set_will("gone", "first");
  mortal->set_will("gone", "last");
  EXPECT_EQ(mortal->find("gone"), std::nullopt);
  mortal.reset();
  EXPECT_EQ(watcher.get("gone", testing::patience(milliseconds(10'000))), "last");
  std::optional<StoreClient> second = store.client();
  second->set_will("never", "x");
  second->set_will("", "");
  second.reset();
  StoreClient third = store.client();
  third.set_will("then", "y");
  {
    StoreClient moved = std::move(third);
  }
  EXPECT_EQ(watcher.get("then", testing::patience(milliseconds(10'000))), "y");
  EXPECT_EQ(watcher.find("never"), std::nullopt);
}

TEST(Store, AnIpv6AddressIsNamedInBrackets) {
  StoreOptions options;
  options.address = "::1";
  options.secret = make_secret();
  try {
    StoreServer server(options);
    EXPECT_EQ(server.where(), concat("[::1]:", server.port()));
    std::string why;
    EXPECT_TRUE(connect_to("[::1]", server.port(), Clock::now() + testing::patience(milliseconds(10'000)), why)) << why;
  } catch (const InputError& error) {
    GTEST_SKIP() << "no IPv6 here: " << error.what();
  }
}

TEST(Store, ListensOnItsInterfaceOnly) {
  StoreUnderTest store;
  std::string why;
  EXPECT_FALSE(connect_to("127.0.0.2", store.port(), Clock::now() + testing::patience(milliseconds(10'000)), why));
}

}  // namespace
}  // namespace tessera::launch
