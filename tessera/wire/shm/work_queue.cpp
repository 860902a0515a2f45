#include <tessera/base/error.h>
#include <tessera/wire/shm/work_queue.h>

#include <signal.h>

namespace tessera::wire::shm {

WorkQueue::WorkQueue(std::unique_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)), collectives_(*communicator_), mailbox_(*communicator_) {}

WorkQueue::~WorkQueue() { close(); }

// Publishes the next collectives, in order, as long as slots are free.
void WorkQueue::publish_waiting() {
  for (const auto& task : queue_) {
    if (task->published) continue;
    if (!collectives_.can_publish(task->number)) return;
    collectives_.publish(task->operation, task->number);
    task->published = true;
  }
}

std::shared_ptr<WorkQueue::Task> WorkQueue::start(Operation operation) {
  communicator_->note_thread();
  auto task = std::make_shared<Task>();
  task->operation = std::move(operation);
  std::unique_lock lock(mutex_);
  if (stop_) throw Failure(Code::shut_down, "the group was closed by shutdown()");
  if (broken_) std::rethrow_exception(broken_);
  communicator_->throw_if_own_failed();
  task->number = next_number_++;
  queue_.push_back(task);
  publish_waiting();
  if (task->published && is_one_shot(task->operation, communicator_->size())) return task;
  want_thread();
  lock.unlock();
  changed_.notify_all();
  return task;
}

// Asks the thread to run the queue.
void WorkQueue::want_thread() {
  ++wanted_;
  if (thread_.joinable()) return;
  sigset_t all, former;
  sigfillset(&all);  // signals belong to the program's threads
  pthread_sigmask(SIG_SETMASK, &all, &former);
  thread_ = std::thread([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
}

// Runs the oldest task and releases the lock while it runs.
void WorkQueue::run_first(std::unique_lock<std::mutex>& lock) {
  running_ = true;
  const std::shared_ptr<Task> task = queue_.front();
  lock.unlock();
  std::exception_ptr failure;
  try {
    if (!task->published) {
      collectives_.wait_to_publish(task->operation, task->number);
      const std::lock_guard again(mutex_);
      publish_waiting();
    }
    collectives_.run(task->operation, task->number, starter_blocked_);
  } catch (const std::exception& error) {
    failure = std::current_exception();
    communicator_->fail(error.what(), code_of(error));
  }
  lock.lock();
  running_ = false;
  if (failure) {
    broken_ = failure;
    wanted_ = 0;
    for (const auto& other : queue_) {
      other->failure = failure;
      other->ended = true;
      other->operation.keep.reset();
    }
    queue_.clear();
  } else {
    task->ended = true;
    task->operation.keep.reset();
    queue_.pop_front();
    if (wanted_ > 0 && queue_.empty()) wanted_ = 0;
  }
  changed_.notify_all();
}

void WorkQueue::wait(Task& task) {
  const Raised raised(communicator_->is_starter() ? &starter_blocked_ : nullptr);
  std::unique_lock lock(mutex_);
  while (!task.ended) {
    if (!running_) {
      run_first(lock);
    } else {
      changed_.wait(lock);
    }
  }
  if (task.failure) std::rethrow_exception(task.failure);
}

bool WorkQueue::wait_until(Task& task, Clock::time_point until) {
  std::unique_lock lock(mutex_);
  if (!task.ended && !stop_) {
    want_thread();
    changed_.notify_all();
    changed_.wait_until(lock, until, [&] { return task.ended; });
  }
  if (!task.ended) return false;
  if (task.failure) std::rethrow_exception(task.failure);
  return true;
}

bool WorkQueue::done(Task& task) {
  std::unique_lock lock(mutex_);
  while (!task.ended && !running_ && queue_.front()->published &&
         collectives_.ready(queue_.front()->operation, queue_.front()->number)) {
    run_first(lock);
  }
  return task.ended;
}

void WorkQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (wanted_ > 0 && !running_ && !queue_.empty()); });
    if (stop_) return;
    run_first(lock);
  }
}

void WorkQueue::check() {
  const std::lock_guard lock(mutex_);
  if (stop_) throw Failure(Code::shut_down, "the group was closed by shutdown()");
  if (broken_) std::rethrow_exception(broken_);
  communicator_->throw_if_failed();
}

void WorkQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    stop_ = true;
  }
  communicator_->close();  // ends the wait of a running collective
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  mailbox_.close();
  std::unique_lock lock(mutex_);
  while (running_) changed_.wait(lock);
  broken_ = std::make_exception_ptr(Failure(Code::shut_down, "the group was closed by shutdown()"));
  for (const auto& task : queue_) {
    task->failure = broken_;
    task->ended = true;
  }
  queue_.clear();
}

}  // namespace tessera::wire::shm
