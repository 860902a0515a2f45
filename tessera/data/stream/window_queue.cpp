#include <tessera/data/stream/window_queue.h>

#include <utility>

#include <tessera/base/error.h>

namespace tessera::data {
namespace {

constexpr std::size_t most_windows = 2;

}  // namespace

void WindowQueue::start(const Mark& mark) {
  TESSERA_CHECK(!worker_.joinable(), "a stream is started twice");
  maker_->seek(mark.place);
  next_ = mark;
  worker_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

void WindowQueue::work(const std::stop_token& stop) {
  try {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return ready_.size() < most_windows; })) {
      lock.unlock();
      auto window = maker_->make();
      lock.lock();
      const std::int64_t first = next_.first;
      next_ = {first + window->rows(), maker_->place()};
      ready_.push_back({std::move(window), first});
      changed_.notify_all();
    }
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    failed_ = std::current_exception();
    changed_.notify_all();
  }
}

/// Drops windows before `row`; returns whether the first of ready_ contains it. The caller holds the mutex.
bool WindowQueue::drop_to(std::int64_t row) {
  while (!ready_.empty() && row >= ready_.front().first + ready_.front().window->rows()) {
    ready_.pop_front();
    changed_.notify_all();
  }
  TESSERA_CHECK(row >= (ready_.empty() ? next_.first : ready_.front().first), "row ", row,
                " of a stream that is at row ", ready_.empty() ? next_.first : ready_.front().first);
  return !ready_.empty();
}

WindowQueue::Found WindowQueue::find(std::int64_t row) {
  TESSERA_CHECK(worker_.joinable(), "a stream that was not started");
  std::unique_lock lock(mutex_);
  while (!drop_to(row)) {
    if (failed_) {
      try {
        std::rethrow_exception(failed_);
      } catch (const std::exception& error) {
        throw Error(concat("the stream of training data: ", error.what()));
      }
    }
    changed_.wait(lock);
  }
  return ready_.front();
}

WindowQueue::Mark WindowQueue::mark_of(std::int64_t row) {
  {
    const std::scoped_lock lock(mutex_);
    if (!drop_to(row) && row == next_.first) return next_;
  }
  const Found found = find(row);
  return {found.first, found.window->begin()};
}

}  // namespace tessera::data
