/// \file
/// tessera train --metrics_port: a scrape during the run, and a port that is already in use.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include <tessera/launch/agent/ports.h>

#include "program.h"

namespace tessera::testing {
namespace {

/// The page, or nothing while no server listens.
std::string scraped(int port) {
  const launch::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return "";
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string all;
  char bytes[4096];
  for (ssize_t n = 0; (n = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0;)
    all.append(bytes, static_cast<std::size_t>(n));
  return all;
}

using MetricsPortTest = ToolTest;

TEST_F(MetricsPortTest, IsScrapedWhileTheRunGoesOn) {
  const int port = launch::choose_port("127.0.0.1", 0);
  auto run = std::async(std::launch::async, [&] {
    return tessera(
        training("out", batch(4, 1, 400) + Strings{"--num_processes", "2", "--metrics_port", std::to_string(port)}));
  });
  const Stopwatch watch;
  std::string page;
  while (!contains(page, "tessera_loss") && watch.seconds() < watch.limit(60)) {
    page = scraped(port);
    usleep(20'000);
  }
  EXPECT_TRUE(page.starts_with("HTTP/1.0 200 OK\r\n")) << page;
  EXPECT_TRUE(contains(page, "tessera_running{job=\"out\"} 1\n")) << page;
  EXPECT_EQ(run.get().exit_code, 0);
  EXPECT_EQ(scraped(port), "") << "nobody listens any more";
}

TEST_F(MetricsPortTest, ATakenPortIsToldBeforeAnythingIsWritten) {
  const launch::BoundSocket taken = launch::listen_on("127.0.0.1", 0);
  const auto run = tessera(training("out", batch(4, 1, 2) + Strings{"--metrics_port", std::to_string(taken.port)}));
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_TRUE(contains(run.err, concat("--metrics_port ", taken.port, ": cannot listen on 127.0.0.1"))) << run.err;
  EXPECT_FALSE(path_exists(at("out")));
}

}  // namespace
}  // namespace tessera::testing
