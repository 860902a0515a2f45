#pragma once
/// \file
/// Background work where only the latest request matters, such as a status page.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::train {

/// A thread that does one job at a time. Of the jobs that arrive while it is busy, only the last one waits and the
/// others are dropped: the submitter is never blocked, and at most one job waits, however slow the disk is. The thread
/// starts with the first job. submit() and finish() must be called by one thread at a time.
class LatestJob {
 public:
  /// `name`: the name of the thread in top and debuggers, at most 15 characters.
  explicit LatestJob(const char* name) : name_(name) {}
  ~LatestJob();  ///< finishes the waiting job first
  LatestJob(const LatestJob&) = delete;
  LatestJob& operator=(const LatestJob&) = delete;

  /// `job` must not throw.
  void submit(std::function<void()> job);
  /// Waits until the last submitted job is done.
  void finish();

 private:
  void work();

  const char* name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> waiting_;
  bool running_ = false, ends_ = false;
  std::thread thread_;  // declared last because it uses the other members
};

}  // namespace tessera::train
