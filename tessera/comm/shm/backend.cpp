// The backend `shm`: collectives of one host's ranks through shared memory. CPU tensors; those from comm::empty_shared
// are read and written in place, others pass through a staging area.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/kernel_types.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/comm/watch.h>
#include <tessera/comm/wired.h>
#include <tessera/wire/shm/work_queue.h>

#include <memory>
#include <string>
#include <utility>

namespace tessera::comm::shm {
namespace {

using namespace wire::shm;
using wire::Operation;

using launch::Op;

// T: WorkQueue::Task or Message.
template <class T>
class QueuedPending final : public Pending {
 public:
  QueuedPending(std::shared_ptr<WorkQueue> queue, std::shared_ptr<T> task)
      : work_queue_(std::move(queue)), task_(std::move(task)) {}
  void wait() override { work_queue_->wait(*task_); }
  bool done() override { return work_queue_->done(*task_); }

 private:
  std::shared_ptr<WorkQueue> work_queue_;
  std::shared_ptr<T> task_;
};

class ShmBackend final : public WiredBackend {
 public:
  ShmBackend(const BackendRequest& request, std::unique_ptr<Communicator> communicator)
      : WiredBackend(request.name, std::string(layout::Shm::row.name), request.rank, request.size, c10::kCPU),
        work_queue_(std::make_shared<WorkQueue>(std::move(communicator))) {}

  Started accumulate(at::Tensor accumulator, at::Tensor input) override {
    return accumulation(Op::all_reduce, accumulator, input, input.nbytes());
  }
  Started accumulate_scatter(at::Tensor accumulator, at::Tensor input) override {
    return accumulation(Op::reduce_scatter, accumulator, input, input.nbytes() / static_cast<std::size_t>(size()));
  }

  void abort(const std::string& why) override { work_queue_->communicator().fail(why); }
  void close() override { work_queue_->close(); }

 private:
  Started begin(Operation operation) override {
    return std::make_shared<QueuedPending<WorkQueue::Task>>(work_queue_, work_queue_->start(std::move(operation)));
  }
  Started post(Operation operation) override {
    return std::make_shared<QueuedPending<Message>>(work_queue_, work_queue_->start_message(std::move(operation)));
  }

  Started accumulation(Op op, const at::Tensor& accumulator, const at::Tensor& input, std::size_t part_bytes) {
    Operation operation = make(op, accumulator, input, accumulator, -1, "fold");
    operation.number = number_of(input.scalar_type()).value();
    operation.accumulates = true;
    operation.part_bytes = part_bytes;
    return begin(std::move(operation));
  }

  std::shared_ptr<WorkQueue> work_queue_;
};

}  // namespace

}  // namespace tessera::comm::shm

namespace tessera {

std::shared_ptr<comm::Backend> layout::Shm::make(const comm::BackendRequest& request) {
  using namespace comm::shm;
  using namespace wire::shm;
  if (request.size > max_ranks) {
    throw InputError(concat("group '", request.name, "' has ", request.size, " ranks; the backend ", row.name,
                            " supports at most ", max_ranks, ". Use ", usual_backend(row.device), "."));
  }
  CommunicatorOptions how;
  how.name = request.name;
  how.rank = request.rank;
  how.job_rank = request.environment.rank;
  how.host_ranks = std::max(request.environment.local_world_size, request.size);
  how.timeout = request.timeout;
  how.stop_requested = [] { return comm::stop_requested(); };
  auto communicator = std::make_unique<Communicator>(process_segment(), how);
  communicator->connect(comm::exchange_texts(*request.store, "shared memory", request.rank, request.size,
                                             communicator->announcement(), request.connect_timeout));
  // No rank may continue, and possibly end, before every rank has mapped all segments.
  comm::exchange_texts(*request.store, "mapping of shared memory", request.rank, request.size, "yes",
                       request.connect_timeout);
  return std::make_shared<ShmBackend>(request, std::move(communicator));
}

}  // namespace tessera
