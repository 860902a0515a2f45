#include <tessera/train/reporting/latest_job.h>

#include <utility>

#include <tessera/base/system/quiet_thread.h>

namespace tessera::train {

LatestJob::~LatestJob() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LatestJob::submit(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.swap(job);  // the replaced job is destroyed outside the lock
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = quiet_thread(name_, [this] { work(); });
}

void LatestJob::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !waiting_ && !running_; });
}

void LatestJob::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || waiting_; });
    if (!waiting_) return;
    std::function<void()> job = std::exchange(waiting_, {});
    running_ = true;
    lock.unlock();
    job();
    job = {};
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace tessera::train
