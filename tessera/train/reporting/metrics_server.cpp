#include <tessera/train/reporting/metrics_server.h>

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::train {
namespace {

constexpr std::size_t most_request = 8192;  ///< maximum bytes of a request's head
constexpr double patience = 1;              ///< maximum seconds per client

launch::UniqueFd listen_here(int port) {
  launch::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;  // allows reusing the port when a run is restarted
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool listens = fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                       ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                       ::listen(fd.get(), 16) == 0;
  if (!listens)
    throw InputError(concat("--metrics_port ", port, ": cannot listen on 127.0.0.1: ", std::strerror(errno),
                            errno == EADDRINUSE ? "; every run on a host needs its own port" : ""));
  return fd;
}

/// Milliseconds left of the `patience` that started at begin_ns, at least 0.
int left_ms(std::int64_t begin_ns) {
  const double left = patience - seconds_since(begin_ns);
  return left > 0 ? static_cast<int>(1000 * left) : 0;
}

std::string http(const char* status, const std::string& type, const std::string& body) {
  return concat("HTTP/1.0 ", status, "\r\nContent-Type: ", type, "\r\nContent-Length: ", body.size(),
                "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

std::string http_answer(const std::string& request, const std::string& metrics) {
  const std::string plain = "text/plain; charset=utf-8";
  const auto words = split(request.substr(0, request.find("\r\n")), ' ');
  if (words.size() != 3 || !words[2].starts_with("HTTP/")) return http("400 Bad Request", plain, "not HTTP\n");
  if (words[0] != "GET" && words[0] != "HEAD") return http("405 Method Not Allowed", plain, "GET only\n");
  const std::string path = words[1].substr(0, words[1].find('?'));
  if (path != "/metrics") return http("404 Not Found", plain, "the metrics are at /metrics\n");
  const std::string answer = http("200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics);
  return words[0] == "HEAD" ? answer.substr(0, answer.find("\r\n\r\n") + 4) : answer;
}

MetricsServer::MetricsServer(int port)
    : listening_(listen_here(port)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TESSERA_CHECK(wake_, "eventfd: ", std::strerror(errno));
  sigset_t all, before;  // signals are handled by the training thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MetricsServer::~MetricsServer() {
  ends_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void MetricsServer::show(std::string text) {
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}

void MetricsServer::serve() {
  pthread_setname_np(pthread_self(), "tessera-metrics");
  while (!ends_) {
    pollfd events[] = {{listening_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(events, 2, -1) < 0 || ends_) continue;
    const launch::UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client)
      answer(client.get());
    else if (errno == EMFILE || errno == ENFILE)
      // no descriptors left: the queue of clients stays readable, so wait instead of spinning
      ::poll(&events[1], 1, 1000);
  }
}

void MetricsServer::answer(int client) {
  const std::int64_t begin_ns = monotonic_ns();
  std::string request;
  const auto ready = [&](short event) {
    pollfd events[] = {{client, event, 0}, {wake_.get(), POLLIN, 0}};
    return ::poll(events, 2, left_ms(begin_ns)) > 0 && !ends_ && events[0].revents != 0;
  };
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < most_request) {
    char bytes[2048];
    if (!ready(POLLIN)) return;
    const ssize_t n = ::recv(client, bytes, sizeof bytes, 0);
    if (n <= 0) return;
    request.append(bytes, static_cast<std::size_t>(n));
  }
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = text_;
  }
  const std::string all = http_answer(request, text);
  for (std::size_t sent = 0; sent < all.size();) {
    if (!ready(POLLOUT)) return;
    const ssize_t n = ::send(client, all.data() + sent, all.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
  ::shutdown(client, SHUT_WR);
  char rest[512];  // closing with unread bytes would reset the connection before the answer is read
  while (ready(POLLIN) && ::recv(client, rest, sizeof rest, 0) > 0) {
  }
}

}  // namespace tessera::train
