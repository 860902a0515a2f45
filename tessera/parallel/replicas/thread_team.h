#pragma once
/// \file
/// A thread with its own intra-op thread pool: a "device" on the CPU.

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::parallel {

/// Runs one task after another on its own thread. LibTorch's operators run there with `intra_op_threads` OpenMP and MKL
/// threads, whatever the rest of the process uses. Create teams on one thread; that thread's own number of threads does
/// not change.
class ThreadTeam {
 public:
  /// `name`: shown in top and debuggers, at most 15 characters.
  ThreadTeam(const std::string& name, int intra_op_threads);
  /// Waits for started work.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// Starts `work` in the caller's state: LibTorch's (grad mode, inference mode, autocast, profiler) and the
  /// floating-point environment (denormals). The future rethrows its exceptions.
  [[nodiscard]] std::future<void> start(std::function<void()> work);
  int threads() const { return intra_op_threads_; }

 private:
  void loop();

  const int intra_op_threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::packaged_task<void()> next_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace tessera::parallel
