#include <tessera/wire/tcp/tasks.h>

#include <signal.h>

#include <utility>

namespace tessera::wire::tcp {

std::shared_ptr<Tasks::Task> Tasks::push(std::function<void()> run) {
  auto task = std::make_shared<Task>();
  task->run = std::move(run);
  const std::lock_guard lock(mutex_);
  if (stop_) throw Failure(Code::shut_down, "the group was closed by shutdown()");
  if (broken_) std::rethrow_exception(broken_);
  queue_.push_back(task);
  if (!thread_.joinable()) {
    sigset_t all, former;
    sigfillset(&all);  // signals belong to the program's threads
    pthread_sigmask(SIG_SETMASK, &all, &former);
    thread_ = std::thread([this] { work(); });
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }
  changed_.notify_all();
  return task;
}

// Runs the oldest task and releases the lock while it runs.
void Tasks::run_first(std::unique_lock<std::mutex>& lock) {
  running_ = true;
  const auto task = queue_.front();
  lock.unlock();
  std::exception_ptr failure;
  try {
    task->run();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  running_ = false;
  task->failure = failure;
  task->ended = true;
  task->run = nullptr;
  if (!queue_.empty()) queue_.pop_front();
  if (failure) {
    broken_ = failure;
    for (const auto& other : queue_) {
      other->failure = failure;
      other->ended = true;
      other->run = nullptr;
    }
    queue_.clear();
  }
  changed_.notify_all();
}

bool Tasks::wait_until(Task& task, Clock::time_point until) {
  std::unique_lock lock(mutex_);
  const bool endless = until == Clock::time_point::max();
  while (!task.ended) {
    if (endless && !running_ && !queue_.empty()) {
      run_first(lock);
    } else if (endless) {
      changed_.wait(lock);
    } else if (!changed_.wait_until(lock, until, [&] { return task.ended; })) {
      return false;
    }
  }
  if (task.failure) std::rethrow_exception(task.failure);
  return true;
}

bool Tasks::ended(Task& task) {
  const std::lock_guard lock(mutex_);
  if (task.ended && task.failure) std::rethrow_exception(task.failure);
  return task.ended;
}

void Tasks::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!running_ && !queue_.empty()); });
    if (stop_) return;
    run_first(lock);
  }
}

void Tasks::close() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !running_; });
  const auto closed = std::make_exception_ptr(Failure(Code::shut_down, "the group was closed by shutdown()"));
  for (const auto& task : queue_) {
    task->failure = closed;
    task->ended = true;
    task->run = nullptr;
  }
  queue_.clear();
  changed_.notify_all();
}

}  // namespace tessera::wire::tcp
