#include <tessera/c/handles.h>

#include <signal.h>

#include <condition_variable>
#include <deque>
#include <thread>

namespace tessera::c {
namespace {

using wire::Clock;
using wire::Code;
using wire::Failure;

// Completes operations whose handle was freed: their results are still needed. One thread, never destroyed.
class Orphans {
 public:
  void take(std::shared_ptr<wire::Work> work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
    changed_.notify_one();
    if (running_) return;
    running_ = true;
    sigset_t all, former;
    sigfillset(&all);  // signals belong to the program's threads
    pthread_sigmask(SIG_SETMASK, &all, &former);
    std::thread([this] { run(); }).detach();
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !works_.empty(); });
      const auto work = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      work->wait_until(Clock::time_point::max());
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<wire::Work>> works_;
  bool running_ = false;
};

std::shared_ptr<wire::Work> work_of(tessera_work work) { return handles().works.find(work)->work; }

void throw_if_failed(const wire::Work& work) {
  if (work.code() != Code::ok) throw Failure(work.code(), work.error());
}

}  // namespace
}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;

extern "C" {

tessera_status tessera_work_wait(tessera_work work, int64_t timeout_ms, int32_t* ended) {
  return guarded([&] {
    const auto found = work_of(work);
    if (timeout_ms < -1) throw Failure(Code::invalid, concat("the timeout is ", timeout_ms, " ms."));
    // A timeout of more than a century counts as unlimited, so that adding it to the clock cannot overflow.
    const bool endless = timeout_ms == -1 || timeout_ms > int64_t{3'200'000'000'000};
    const auto until = endless ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(timeout_ms);
    const bool done = found->wait_until(until);
    if (ended != nullptr) *ended = done ? 1 : 0;
    if (!done)
      throw Failure(Code::timeout, concat("the operation has not ended after ", timeout_ms, " ms; it continues."));
    throw_if_failed(*found);
  });
}

tessera_status tessera_work_test(tessera_work work, int32_t* ended) {
  return guarded([&] {
    const auto found = work_of(work);
    given(ended, "ended") = found->poll() ? 1 : 0;
  });
}

tessera_status tessera_work_status(tessera_work work) {
  return guarded([&] {
    const auto found = work_of(work);
    if (!found->ended()) throw Failure(Code::invalid, "the operation has not ended.");
    throw_if_failed(*found);
  });
}

tessera_status tessera_work_error(tessera_work work, char* buffer, int64_t capacity, int64_t* needed) {
  return guarded([&] {
    const auto found = work_of(work);
    copy_out(found->ended() ? found->error() : "", buffer, capacity, needed);
  });
}

tessera_status tessera_work_source(tessera_work work, int32_t* rank) {
  return guarded([&] {
    const auto found = work_of(work);
    int32_t& source = given(rank, "rank");
    if (!found->ended()) throw Failure(Code::invalid, "the operation has not ended.");
    throw_if_failed(*found);
    if (found->source() < 0) throw Failure(Code::invalid, "the operation received no message.");
    source = found->source();
  });
}

tessera_status tessera_work_free(tessera_work work) {
  return guarded([&] {
    auto freed = handles().works.take(work, false)->work;
    if (freed->ended()) return;
    static Orphans& orphans = *new Orphans;
    orphans.take(std::move(freed));
  });
}

}  // extern "C"
