// The shared-memory transport (shm/) as a Transport.
#include <tessera/wire/shm/work_queue.h>
#include <tessera/wire/transport.h>

#include <utility>

namespace tessera::wire {
namespace {

using shm::Communicator;
using shm::WorkQueue;

// How long a collective that is only polled may stay pending before the group's thread runs it.
constexpr std::chrono::milliseconds patience(20);

class PendingTask final : public Pending {
 public:
  PendingTask(std::shared_ptr<WorkQueue> queue, std::shared_ptr<WorkQueue::Task> task)
      : queue_(std::move(queue)), task_(std::move(task)) {}

  bool wait_until(Clock::time_point until) override {
    if (until != Clock::time_point::max()) return queue_->wait_until(*task_, until);
    queue_->wait(*task_);
    return true;
  }
  bool poll() override {
    if (!queue_->done(*task_) && Clock::now() - started_ < patience) return false;
    return queue_->wait_until(*task_, Clock::now());  // the thread detects lost peers
  }

 private:
  std::shared_ptr<WorkQueue> queue_;
  std::shared_ptr<WorkQueue::Task> task_;
  const Clock::time_point started_ = Clock::now();
};

class PendingMessage final : public Pending {
 public:
  PendingMessage(std::shared_ptr<WorkQueue> queue, std::shared_ptr<shm::Message> message)
      : queue_(std::move(queue)), message_(std::move(message)) {}

  bool wait_until(Clock::time_point until) override {
    return guarded([&] { return queue_->wait_until(*message_, until); });
  }
  bool poll() override {
    return guarded([&] { return queue_->poll(*message_); });
  }
  int source() const override { return message_->source; }

 private:
  template <class Ask>
  bool guarded(const Ask& ask) {
    try {
      return ask();
    } catch (const std::exception& error) {
      queue_->communicator().fail(error.what(), code_of(error));
      throw;
    }
  }

  std::shared_ptr<WorkQueue> queue_;
  std::shared_ptr<shm::Message> message_;
};

class SharedMemory final : public Transport {
 public:
  explicit SharedMemory(std::unique_ptr<Communicator> communicator)
      : queue_(std::make_shared<WorkQueue>(std::move(communicator))) {}

  const char* name() const override { return "shm"; }

  std::shared_ptr<Pending> start(Operation operation) override {
    const launch::Op op = operation.entry.op;
    if (op == launch::Op::send || op == launch::Op::recv) {
      return std::make_shared<PendingMessage>(queue_, queue_->start_message(std::move(operation)));
    }
    return std::make_shared<PendingTask>(queue_, queue_->start(std::move(operation)));
  }
  void fail(const std::string& reason, Code code) override { queue_->communicator().fail(reason, code); }
  void check() const override { queue_->check(); }
  void close() override { queue_->close(); }
  bool is_shared(const void* data) const override { return shm::offset_in_arena(data).has_value(); }

 private:
  std::shared_ptr<WorkQueue> queue_;
};

}  // namespace

std::shared_ptr<Transport> make_shared_memory(const Place& place) {
  shm::CommunicatorOptions how;
  how.name = place.name;
  how.rank = place.rank;
  how.job_rank = place.world_rank;
  how.host_ranks = place.host_ranks;
  how.timeout = place.timeout;
  auto communicator = std::make_unique<Communicator>(shm::process_segment(), how);
  communicator->connect(place.exchange("shared memory", communicator->announcement()));
  // No rank may continue, and possibly end, before every rank has mapped all segments.
  place.exchange("mapping", "yes");
  return std::make_shared<SharedMemory>(std::move(communicator));
}

}  // namespace tessera::wire
