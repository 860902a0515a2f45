#pragma once
/// \file
/// A subset of a world's ranks, and the operations among them.

#include <tessera/wire/request.h>
#include <tessera/wire/transport.h>
#include <tessera/wire/work.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::wire {

/// Receives a group's records.
struct Journal {
  Recorder recorder;
  std::function<void(const Work&, const std::string& group)> on_end;  ///< may be empty
  std::mutex mutex;                                                   ///< guards on_end
};

/// Thread-safe, but only one thread at a time may start collectives, in the same order on all ranks.
class Group {
 public:
  Group(Place place, std::shared_ptr<Transport> transport, std::shared_ptr<Journal> journal);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const { return place_.name; }
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  const std::vector<int>& ranks() const { return place_.ranks; }  ///< the world's
  const char* transport() const { return transport_->name(); }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ms_ = timeout.count(); }

  /// Throws Failure for an invalid argument, and if the group has failed or was closed.
  std::shared_ptr<Work> start(Request request);
  /// Starts several requests as one work; adjacent all_reduces of the same kind are fused.
  std::shared_ptr<Work> start(std::vector<Request> requests);

  void abort(const std::string& reason);
  void check() const { transport_->check(); }
  void close();

  /// Unfinished works, oldest first.
  std::vector<std::shared_ptr<Work>> open_works();

 private:
  void add(const Request& request, Work::Parts& parts);
  void add_fused(const std::vector<Request>& requests, Work::Parts& parts);
  void add_operation(const Request& request, const void* input, void* output, std::shared_ptr<void> keep,
                     Work::Parts& parts);
  void begin(Operation operation, Work::Parts& parts);
  std::shared_ptr<Work> finish(Work::Parts parts);

  const Place place_;
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<Journal> journal_;
  std::atomic<std::int64_t> timeout_ms_;
  std::mutex start_mutex_;
  std::uint64_t collectives_ = 0, messages_ = 0;
  std::mutex works_mutex_;
  std::vector<std::weak_ptr<Work>> works_;
};

}  // namespace tessera::wire
