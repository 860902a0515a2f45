#include <tessera/base/clock.h>
#include <tessera/wire/work.h>

#include <utility>

namespace tessera::wire {

void Work::end(Code code, const std::string& error) {
  const std::lock_guard lock(mutex_);
  if (ended()) return;
  code_ = code;
  error_ = error;
  if (code == Code::ok) {
    for (const auto& pending : parts_.pendings) source_ = pending->source();
    try {
      if (parts_.finish) parts_.finish();
    } catch (const std::exception& failure) {
      code_ = code_of(failure);
      error_ = failure.what();
    }
  }
  if (on_end_) on_end_(*this);
  on_end_ = nullptr;
  parts_.finish = nullptr;
  parts_.pendings.clear();
  ended_.store(true, std::memory_order_release);
}

template <class Ask>
bool Work::ask(const Ask& ask) {
  if (ended()) return true;
  std::vector<std::shared_ptr<Pending>> pendings;
  {
    const std::lock_guard lock(mutex_);
    pendings = parts_.pendings;
  }
  try {
    for (const auto& pending : pendings) {
      if (!ask(*pending)) return false;
    }
    end(Code::ok, "");
  } catch (const std::exception& error) {
    end(code_of(error), error.what());
  }
  return true;
}

bool Work::wait_until(Clock::time_point until) {
  const std::int64_t begin = monotonic_ns();
  const bool all = ask([&](Pending& pending) { return pending.wait_until(until); });
  waited_ns_.fetch_add(monotonic_ns() - begin, std::memory_order_relaxed);
  return all;
}

bool Work::poll() {
  return ask([](Pending& pending) { return pending.poll(); });
}

}  // namespace tessera::wire
