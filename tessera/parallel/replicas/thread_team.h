#pragma once
/// \file
/// A thread with an intra-op thread pool of its own: a "device" of the CPU.

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::parallel {

/// Does one piece of work after the other on its own thread. LibTorch's operators run there with `intra_op_threads`
/// threads of OpenMP and MKL, whatever the rest of the process has. Make teams on one thread; its own number of threads
/// stays.
class ThreadTeam {
 public:
  /// `name`: for top and debuggers, at most 15 characters.
  ThreadTeam(const std::string& name, int intra_op_threads);
  /// Waits for what was started.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// Starts `work` in the caller's state: LibTorch's (grad mode, inference mode, autocast, profiler) and the
  /// floating-point environment (denormals). The future throws what it throws.
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
