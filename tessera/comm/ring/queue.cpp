#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/comm/cause.h>
#include <tessera/comm/ring/queue.h>
#include <tessera/comm/watch.h>

#include <signal.h>

#include <chrono>

namespace tessera::comm::ring {

// Shared with the tasks, which may outlive the queue.
struct Queue::State {
  std::mutex mutex;
  std::condition_variable pushed;  // wakes the thread
  std::deque<std::shared_ptr<Task>> tasks;
  bool running = false;  // the front task is running
  bool ending = false;
  std::string failure;  // error of the first failed task
};

class Queue::Task final : public Pending {
 public:
  Task(std::shared_ptr<State> state, std::function<void()> work) : state_(std::move(state)), work_(std::move(work)) {}

  void wait() override {
    std::unique_lock lock(state_->mutex);
    while (!done_) {
      if (!state_->running && !state_->tasks.empty() && state_->tasks.front().get() == this) {
        run_front(*state_, lock);
        continue;
      }
      if (ended_.wait_for(lock, std::chrono::milliseconds(200)) == std::cv_status::timeout) {
        lock.unlock();
        throw_if_stopped();
        lock.lock();
      }
    }
    if (error_) std::rethrow_exception(error_);
  }

  bool done() override {
    const std::lock_guard lock(state_->mutex);
    return done_;
  }

 private:
  friend class Queue;
  std::shared_ptr<State> state_;
  std::function<void()> work_;
  std::condition_variable ended_;
  bool done_ = false;
  std::exception_ptr error_;
};

// Called with the lock held; releases it while the task runs.
void Queue::run_front(State& state, std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Task> task = state.tasks.front();
  const std::string before = state.failure;
  state.running = true;
  lock.unlock();
  std::exception_ptr error;
  std::string text;
  try {
    if (!before.empty()) throw Error(concat("an earlier operation of this group failed: ", before));
    task->work_();
  } catch (const std::exception& e) {
    error = std::current_exception();
    text = cause_text(e);
  }
  task->work_ = nullptr;  // frees its tensors
  lock.lock();
  if (error && state.failure.empty()) state.failure = text;
  state.running = false;
  state.tasks.pop_front();
  task->error_ = error;
  task->done_ = true;
  task->ended_.notify_all();
  if (state.tasks.empty()) return;
  // The next task's waiter may be asleep, and so may the thread.
  state.tasks.front()->ended_.notify_all();
  state.pushed.notify_one();
}

Queue::~Queue() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->pushed.notify_all();
  thread_.join();
}

std::shared_ptr<Pending> Queue::push(std::function<void()> work) {
  if (!state_) state_ = std::make_shared<State>();
  auto task = std::make_shared<Task>(state_, std::move(work));
  {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(task);
  }
  if (!thread_.joinable()) {
    sigset_t all, before;  // signals belong to the main thread
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { this->work(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  state_->pushed.notify_one();
  return task;
}

bool Queue::idle() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->tasks.empty();
}

void Queue::work() {
  const std::shared_ptr<State> state = state_;
  std::unique_lock lock(state->mutex);
  while (true) {
    state->pushed.wait(lock, [&] { return state->ending || (!state->tasks.empty() && !state->running); });
    if (!state->tasks.empty() && !state->running) {
      run_front(*state, lock);
    } else if (state->ending) {
      return;
    }
  }
}

}  // namespace tessera::comm::ring
