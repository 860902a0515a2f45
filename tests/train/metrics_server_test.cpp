// --metrics_port: its responses, and misbehaving clients.

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/train/reporting/metrics_server.h>
#include <tests/error_of.h>

namespace tessera::train {
namespace {

using testing::error_of;

launch::UniqueFd connect_to_port(int port) {
  launch::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

std::string asked(int port, const std::string& request) {
  const launch::UniqueFd fd = connect_to_port(port);
  EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string all;
  char bytes[4096];
  for (ssize_t n = 0; (n = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0;)
    all.append(bytes, static_cast<std::size_t>(n));
  return all;
}

const std::string get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST(MetricsServer, AnswersByTheRulesOfHttp) {
  const auto status = [](const std::string& request) { return http_answer(request, "page\n").substr(9, 3); };
  EXPECT_EQ(http_answer(get, "page\n"),
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 5\r\n"
            "Connection: close\r\n\r\npage\n");
  EXPECT_EQ(status("GET /metrics?x=1 HTTP/1.1\r\n\r\n"), "200");
  EXPECT_TRUE(http_answer("HEAD /metrics HTTP/1.0\r\n\r\n", "page\n").ends_with("\r\n\r\n"));
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "404");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
  for (const char* bad : {"", "GET\r\n\r\n", "GET /metrics\r\n\r\n", "\0\1\2", "a b c d\r\n\r\n"})
    EXPECT_EQ(status(bad), "400") << bad;
}

TEST(MetricsServer, ShowsTheNewestPage) {
  const int port = launch::choose_port("127.0.0.1", 0);
  MetricsServer server(port);
  server.show("first 1\n");
  EXPECT_TRUE(asked(port, get).ends_with("\r\n\r\nfirst 1\n"));
  const std::string large(3 << 20, 'x');
  server.show(large);
  EXPECT_TRUE(asked(port, get).ends_with(large)) << "more than a socket accepts at once";
}

TEST(MetricsServer, NobodyStopsIt) {
  const int port = launch::choose_port("127.0.0.1", 0);
  {
    MetricsServer server(port);
    server.show("alive 1\n");
    {
      const launch::UniqueFd gone = connect_to_port(port);
    }
    EXPECT_TRUE(asked(port, std::string(20000, 'y')).starts_with("HTTP/1.0 400"));
    const launch::UniqueFd silent = connect_to_port(port);  // sends nothing, so the next client waits a second
    EXPECT_TRUE(asked(port, get).ends_with("alive 1\n"));
  }
  // Shutdown waits for no client. Otherwise it would take a second every time, even on a fast machine.
  double least = 1e9;
  for (int round = 0; round < 20 && least > 0.5; ++round) {
    std::int64_t begin_ns = 0;
    {
      const MetricsServer server(port);
      const launch::UniqueFd last = connect_to_port(port);
      usleep(20'000);
      begin_ns = monotonic_ns();
    }
    least = std::min(least, seconds_since(begin_ns));
  }
  EXPECT_LE(least, 0.5);
  MetricsServer(port).show("the port is free again\n");
}

TEST(MetricsServer, APortInUseIsNamed) {
  const launch::BoundSocket taken = launch::listen_on("127.0.0.1", 0);
  const std::string error = error_of([&] { const MetricsServer server(taken.port); });
  EXPECT_NE(error.find("--metrics_port"), std::string::npos) << error;
  EXPECT_NE(error.find("every run on a host needs its own port"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera::train
