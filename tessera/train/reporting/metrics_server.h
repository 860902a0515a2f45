#pragma once
/// \file
/// Serves a run's current metrics at http://127.0.0.1:PORT/metrics for Prometheus to scrape (--metrics_port).
///
/// HTTP/1.0 with a single page. A separate thread answers clients one after another, within a second each, so that a
/// client that sends or reads nothing can delay the next scrape but never a step. Only this host can connect.

#include <tessera/launch/agent/unique_fd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::train {

class MetricsServer {
 public:
  /// Listens on 127.0.0.1. Throws InputError with the port if it cannot.
  explicit MetricsServer(int port);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// Sets the text of /metrics. Thread-safe.
  void show(std::string text);

 private:
  void serve();
  void answer(int client);

  launch::UniqueFd listening_, wake_;  ///< wake_: an eventfd that stops the thread
  std::mutex mutex_;
  std::string text_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

/// The answer to a request, including status line and headers. `request`: its head, up to the empty line; `metrics`:
/// the page.
std::string http_answer(const std::string& request, const std::string& metrics);

}  // namespace tessera::train
