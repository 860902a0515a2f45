#include <fcntl.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/launch/agent/ports.h>

#include <tests/error_of.h>

#include <set>

namespace tessera::launch {
namespace {

std::string message_of(const std::string& address, int port) {
  return tessera::testing::error_of([&] { listen_on(address, port); });
}

TEST(Ports, AFreePortIsChosenAndIsUsable) {
  const int port = choose_port("127.0.0.1");
  EXPECT_GE(port, 1024);
  const BoundSocket socket = listen_on("127.0.0.1", port);
  EXPECT_EQ(socket.port, port);
  EXPECT_EQ(::fcntl(socket.fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Ports, AnAddressMayStandInBrackets) {
  EXPECT_TRUE(is_loopback("[::1]"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("[fd00::1]"));
  const std::string told = message_of("[2001:db8::1]", 29500);  // reserved for documentation: no host has this address
  EXPECT_EQ(told.find("Name or service not known"), std::string::npos) << told;
  EXPECT_NE(told.find("2001:db8::1"), std::string::npos) << told;
}

TEST(Ports, SocketsHeldTogetherHaveDifferentPorts) {
  std::vector<BoundSocket> held;
  std::set<int> ports;
  for (int i = 0; i < 100; ++i) {
    held.push_back(listen_on("127.0.0.1", 0));
    ports.insert(held.back().port);
  }
  EXPECT_EQ(ports.size(), 100u);
}

TEST(Ports, ReasonsAreNamed) {
  const BoundSocket taken = listen_on("127.0.0.1", 0);
  const auto in_use = message_of("127.0.0.1", taken.port);
  EXPECT_NE(in_use.find(std::to_string(taken.port) + " on 127.0.0.1: the port is in use"), std::string::npos) << in_use;
  EXPECT_THROW(choose_port("127.0.0.1", taken.port), InputError);
  const auto elsewhere = message_of("192.0.2.1", 20000);  // TEST-NET-1: no host has this address
  EXPECT_NE(elsewhere.find("it must be an address of this host"), std::string::npos) << elsewhere;
  EXPECT_NE(message_of("", 20000).find("address ''"), std::string::npos);
  EXPECT_NE(message_of("127.0.0.1", 65536).find("65536"), std::string::npos);
  EXPECT_NE(message_of("127.0.0.1", -1).find("-1"), std::string::npos);
}

}  // namespace
}  // namespace tessera::launch
