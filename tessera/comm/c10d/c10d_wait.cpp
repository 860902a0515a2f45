#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/c10d/c10d_wait.h>
#include <tessera/comm/watch.h>

#include <signal.h>

#include <chrono>

namespace tessera::comm {
namespace {

constexpr std::chrono::milliseconds slice(200), tick(100);

}  // namespace

void wait_for_collective(const c10::intrusive_ptr<c10d::Work>& work) {
  while (true) {
    try {
      if (!work->wait(slice)) throw Error("the operation was aborted");
      return;
    } catch (const c10::Error&) {
      // The slice has passed, or the work has failed. If it has just finished, wait() returns or throws its result.
      if (work->isCompleted()) {
        if (!work->wait()) throw Error("the operation was aborted");
        return;
      }
    }
    throw_if_stopped();
  }
}

MessageWaiter::~MessageWaiter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MessageWaiter::throw_if_ended() {
  throw_if_stopped();
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Error("the group was aborted after another operation failed");
}

void MessageWaiter::wait(const c10::intrusive_ptr<c10d::Work>& work) {
  throw_if_ended();
  std::list<c10d::Work*>::iterator place;
  {
    const std::lock_guard lock(mutex_);
    place = waits_.insert(waits_.end(), work.get());
    if (!thread_.joinable()) {
      // Signals belong to the main thread.
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      thread_ = std::thread([this] { watch(); });
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    if (asleep_) changed_.notify_all();
  }
  bool done = false;
  std::exception_ptr failure;
  try {
    done = work->wait();
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    waits_.erase(place);
  }
  if (done) return;
  throw_if_ended();
  if (failure) std::rethrow_exception(failure);
  throw Error("the operation was aborted");
}

void MessageWaiter::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (c10d::Work* work : waits_) work->abort();
}

void MessageWaiter::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (waits_.empty()) {
      asleep_ = true;
      changed_.wait(lock, [&] { return ending_ || !waits_.empty(); });
      asleep_ = false;
    }
    changed_.wait_for(lock, tick, [&] { return ending_; });
    if (ending_ || (!aborted_ && !stop_requested())) continue;
    // Repeat at every tick: an abort is lost if the wait has not begun yet.
    for (c10d::Work* work : waits_) work->abort();
  }
}

}  // namespace tessera::comm
