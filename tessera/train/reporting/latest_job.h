#pragma once
/// \file
/// Work that nobody waits for, and of which only the latest counts: a page that shows how things stand.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::train {

/// One thread does one job at a time. Of jobs that arrive meanwhile the last one waits, and the others are never done:
/// whoever submits is not held up, and no more than one waits however slow a disk is. The thread begins with the first
/// job. submit() and finish() are one thread's at a time.
class LatestJob {
 public:
  /// `name`: of the thread, for top and debuggers, at most 15 characters.
  explicit LatestJob(const char* name) : name_(name) {}
  ~LatestJob();  ///< what waits is done first
  LatestJob(const LatestJob&) = delete;
  LatestJob& operator=(const LatestJob&) = delete;

  /// `job` throws nothing.
  void submit(std::function<void()> job);
  /// Returns when the last job that was submitted is done.
  void finish();

 private:
  void work();

  const char* name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> waiting_;
  bool running_ = false, ends_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tessera::train
