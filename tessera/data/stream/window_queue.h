#pragma once
/// \file
/// A queue of windows that a background thread makes ahead of the reader.

#include <tessera/data/stream/row_window.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::data {

/// The rows of one part of the data, numbered consecutively over all epochs. Holds at most two windows: the one being
/// read and the next, possibly still under construction. Any number of threads may call it.
class WindowQueue {
 public:
  explicit WindowQueue(std::unique_ptr<WindowMaker> maker) : maker_(std::move(maker)) {}

  /// The position at which a window begins, and the number of its first row.
  struct Mark {
    std::int64_t first = 0;
    WindowPlace place;
  };
  /// Starts making windows from `mark` on. Call once.
  void start(const Mark& mark);

  struct Found {
    std::shared_ptr<const RowWindow> window;
    std::int64_t first = 0;  ///< number of the window's first row
  };
  /// Returns the window that contains a row; waits until it is made. Drops the windows before it, whose rows must not
  /// be requested again. Throws Error for failures of the thread.
  Found find(std::int64_t row);
  /// The mark from which a reader of rows `row` and later must start; drops windows as find() does.
  Mark mark_of(std::int64_t row);

 private:
  void work(const std::stop_token& stop);
  bool drop_to(std::int64_t row);

  std::unique_ptr<WindowMaker> maker_;  // used by the thread only
  std::mutex mutex_;                    // guards the following members
  std::condition_variable_any changed_;
  std::deque<Found> ready_;
  Mark next_;  // the mark after the last window in ready_
  std::exception_ptr failed_;
  std::jthread worker_;  // declared last, so that it is joined before the members it uses are destroyed
};

}  // namespace tessera::data
