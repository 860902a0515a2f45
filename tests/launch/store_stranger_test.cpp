// Clients that do not know the secret, and clients that know it and break the protocol.
#include <gtest/gtest.h>

#include "store_under_test.h"

#include <tessera/launch/store/store_wire.h>
#include <tests/stopwatch.h>

#include <dirent.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

namespace tessera::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

int open_descriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

/// A session with messages built by hand, byte by byte.
struct ByHand {
  explicit ByHand(const StoreUnderTest& store) : peer(store.port()) {
    wire::Hello hello;
    hello.generation = -1;
    random_bytes(hello.nonce);
    said_hello = wire::encode_hello(store.secret(), hello);
    if (!peer.send(said_hello)) throw Error("no hello");
    const auto reply = wire::read_reply(store.secret(), said_hello, peer.receive(wire::reply_bytes));
    if (!reply) throw Error("no reply");
    const Digest proof = wire::proof(store.secret(), hello.nonce, reply->nonce);
    said_proof = std::string(wire::as_text(proof));
    key = wire::client_key(store.secret(), hello.nonce, reply->nonce);
    if (!peer.send(said_proof)) throw Error("no proof");
  }
  std::string frame(wire::Op op, std::uint64_t sequence, std::vector<std::string_view> fields) const {
    std::string bytes = wire::encode(static_cast<std::uint16_t>(op), sequence, 0, fields);
    const Digest mac = Hmac(key).update(bytes).finish();
    return bytes.append(wire::as_text(mac));
  }
  RawPeer peer;
  std::string said_hello, said_proof;
  Digest key;
};

TEST(StoreStranger, RandomBytesGetAClosedConnectionAndNothingElse) {
  StoreUnderTest store;
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    RawPeer peer(store.port());
    std::string bytes(80 + random() % 400, 0);
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 3 == 0) bytes.replace(0, 8, wire::magic);
    peer.send(bytes);
    ASSERT_TRUE(peer.closed_silently()) << "attempt " << i;
  }
  EXPECT_EQ(store.counters().authenticated, 0u);
  EXPECT_EQ(store.counters().refused, 300u);
  EXPECT_TRUE(store.client().check({}));
}

TEST(StoreStranger, WhoIsSlowIsClosedAndWhoLeavesIsForgotten) {
  StoreLimits limits;
  limits.authentication = milliseconds(300);
  StoreUnderTest store(limits);
  const testing::Stopwatch watch;
  RawPeer silent(store.port()), half(store.port());
  half.send(std::string(wire::magic));
  {
    RawPeer leaving(store.port());
  }
  EXPECT_TRUE(silent.closed_silently());
  EXPECT_TRUE(half.closed_silently());
  EXPECT_GE(watch.seconds(), 0.29);
  EXPECT_LT(watch.seconds(), watch.limit(3));
  EXPECT_EQ(store.with([](StoreServer& server) { return server.pending(); }), 0);
}

TEST(StoreStranger, ARepeatedSessionIsRefused) {
  StoreUnderTest store;
  ByHand session(store);
  const std::string request = session.frame(wire::Op::add, 0, {"count"});
  ASSERT_TRUE(session.peer.send(request));
  ASSERT_FALSE(session.peer.receive(wire::header_bytes).empty());
  // Replays everything the client sent, byte for byte.
  RawPeer replay(store.port());
  replay.send(session.said_hello + session.said_proof + request);
  EXPECT_TRUE(replay.closed_silently());
  // The hello of an unauthenticated client combined with the proof of another session.
  wire::Hello hello;
  random_bytes(hello.nonce);
  RawPeer mixed(store.port());
  mixed.send(wire::encode_hello(store.secret(), hello));
  EXPECT_EQ(mixed.receive(wire::reply_bytes).size(), wire::reply_bytes);
  mixed.send(session.said_proof);
  EXPECT_TRUE(mixed.closed_silently());
  EXPECT_EQ(store.counters().authenticated, 1u);
}

TEST(StoreStranger, FramesThatAreRepeatedSpoiltOrTooLargeEndTheSession) {
  StoreLimits limits;
  limits.value_bytes = 1000;
  StoreUnderTest store(limits);
  const auto ends = [&](const std::string& what, const std::function<std::string(const ByHand&)>& bytes) {
    ByHand session(store);
    ASSERT_TRUE(session.peer.send(session.frame(wire::Op::set, 0, {"key", "value"})));
    ASSERT_EQ(session.peer.receive(wire::header_bytes + wire::mac_bytes).size(), wire::header_bytes + wire::mac_bytes);
    session.peer.send(bytes(session));
    EXPECT_TRUE(session.peer.closed_silently()) << what;
  };
  ends("the same frame again", [](const ByHand& s) { return s.frame(wire::Op::set, 0, {"key", "value"}); });
  ends("a frame too early", [](const ByHand& s) { return s.frame(wire::Op::set, 2, {"key", "value"}); });
  ends("another byte", [](const ByHand& s) {
    std::string frame = s.frame(wire::Op::set, 1, {"key", "value"});
    frame[wire::header_bytes + 4] ^= 1;
    return frame;
  });
  ends("without a key", [](const ByHand& s) {
    return wire::encode(1, 1, 0, std::vector<std::string_view>{"key", "injected"}) + std::string(wire::mac_bytes, 0);
  });
  ends("a huge length", [](const ByHand& s) {
    std::string frame = s.frame(wire::Op::set, 1, {"key", "value"});
    frame.replace(0, 4, "\xff\xff\xff\xff");
    return frame;
  });
  EXPECT_EQ(store.counters().broken, 5u);
  EXPECT_EQ(store.client().find("key"), "value");
  EXPECT_LT(store.with([](StoreServer& server) { return server.memory_bytes(); }), 1000u);
}

TEST(StoreStranger, AnUnknownRequestIsRefusedInWords) {
  StoreUnderTest store;
  ByHand session(store);
  ASSERT_TRUE(session.peer.send(session.frame(static_cast<wire::Op>(99), 0, {"key"})));
  const auto header = wire::read_header(session.peer.receive(wire::header_bytes));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->kind, static_cast<std::uint16_t>(wire::Status::bad_request));
}

TEST(StoreStranger, AThousandConnectionsHoldNeitherDescriptorsNorTheOthersUp) {
  StoreUnderTest store;
  StoreClient before = store.client();
  const int own = open_descriptors();
  std::vector<std::unique_ptr<RawPeer>> crowd;
  for (int i = 0; i < 1000; ++i) {
    crowd.push_back(std::make_unique<RawPeer>(store.port()));
    if (i % 2 == 0) crowd.back()->send("TESSRDZV and then nothing");
  }
  EXPECT_LE(store.with([](StoreServer& server) { return server.pending(); }), 64);
  EXPECT_LE(open_descriptors(), own + 1000 + 64 + 4);
  const testing::Stopwatch watch;
  for (int i = 0; i < 100; ++i) before.add("count", 1);
  StoreClient during = store.client();  // a legitimate client connects in the meantime
  EXPECT_EQ(during.add("count", 1), 101);
  EXPECT_LT(watch.seconds(), watch.limit(2));
  EXPECT_EQ(store.counters().authenticated, 2u);
}

TEST(StoreStranger, NewcomersGetInWhileACrowdKeepsKnocking) {
  StoreUnderTest store;
  std::atomic<bool> stop = false;
  std::thread crowd([&] {
    while (!stop) {
      try {
        std::vector<std::unique_ptr<RawPeer>> some;
        for (int i = 0; i < 100; ++i) some.push_back(std::make_unique<RawPeer>(store.port()));
      } catch (const Error&) {
        std::this_thread::sleep_for(milliseconds(10));
      }
    }
  });
  // The strangers connect before the newcomers and keep doing so throughout.
  const testing::Stopwatch watch;
  while (store.counters().refused <= 50 && watch.seconds() < watch.limit(30))
    std::this_thread::sleep_for(milliseconds(1));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(store.client().add("count", 1), i + 1);
  stop = true;
  crowd.join();
  EXPECT_GT(store.counters().refused, 50u);
}

TEST(StoreStranger, TooManyWhoKnowTheSecretAreToldSo) {
  StoreLimits limits;
  limits.connections = 2;
  StoreUnderTest store(limits);
  StoreClient a = store.client(), b = store.client();
  try {
    store.client();
    ADD_FAILURE() << "no error";
  } catch (const StoreLost& error) {
    EXPECT_NE(std::string(error.what()).find("its maximum number of connections"), std::string::npos) << error.what();
  }
  a.set("still", "well");
}

TEST(StoreStranger, AClientDistrustsWhoDoesNotKnowTheSecret) {
  // A server that answers every hello with a well-formed reply made with another secret.
  int port = 0;
  const UniqueFd listener = listen_on("127.0.0.1", 0, port);
  std::thread impostor([&] {
    pollfd ready{listener.get(), POLLIN, 0};
    poll(&ready, 1, 5000);
    const UniqueFd peer(accept(listener.get(), nullptr, nullptr));
    std::string answer = wire::encode_reply(make_secret(), std::string(wire::hello_bytes, 'x'), {});
    send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    char buffer[256];
    while (recv(peer.get(), buffer, sizeof buffer, 0) > 0) {
    }
  });
  StoreClientOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.secret = make_secret();
  try {
    StoreClient client(options);
    ADD_FAILURE() << "no error";
  } catch (const StoreLost& error) {
    EXPECT_NE(std::string(error.what()).find("does not know this job's secret"), std::string::npos) << error.what();
  }
  impostor.join();
}

}  // namespace
}  // namespace tessera::launch
