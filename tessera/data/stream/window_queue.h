#pragma once
/// \file
/// Windows that a background thread makes ahead of who reads them.

#include <tessera/data/stream/row_window.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::data {

/// The rows of one part of the data, numbered through all epochs. Holds two windows at most: the one that is read and
/// the next, which may just be in the making. Any number of threads may call it.
class WindowQueue {
 public:
  explicit WindowQueue(std::unique_ptr<WindowMaker> maker) : maker_(std::move(maker)) {}

  /// Where a window begins, and the number of its first row.
  struct Mark {
    std::int64_t first = 0;
    WindowPlace place;
  };
  /// Begins to make windows from there on. Once.
  void start(const Mark& mark);

  struct Found {
    std::shared_ptr<const RowWindow> window;
    std::int64_t first = 0;  ///< number of its first row
  };
  /// The window that holds a row; waits until it is made. Windows before it are dropped: nobody may ask for their rows
  /// again. Throws Error with what the thread has come across.
  Found find(std::int64_t row);
  /// Where a reader must begin who wants the rows from `row` on; drops as find() does.
  Mark mark_of(std::int64_t row);

 private:
  void work(const std::stop_token& stop);
  bool drop_to(std::int64_t row);

  std::unique_ptr<WindowMaker> maker_;  // the thread's
  std::mutex mutex_;                    // guards what follows
  std::condition_variable_any changed_;
  std::deque<Found> ready_;
  Mark next_;  // behind the last of ready_
  std::exception_ptr failed_;
  std::jthread worker_;  // last: it is joined before what it uses goes
};

}  // namespace tessera::data
