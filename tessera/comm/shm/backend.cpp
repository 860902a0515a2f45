// The backend `shm`: collectives of one host's ranks through shared memory. CPU tensors; those from comm::empty_shared
// are read and written in place, others pass through a staging area.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/kernel_types.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/comm/watch.h>
#include <tessera/wire/shm/work_queue.h>

#include <optional>
#include <utility>

namespace tessera::comm::shm {
namespace {

using namespace wire::shm;
using wire::Operation;

using launch::Entry;
using launch::Op;

std::byte* bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.data_ptr()) : nullptr;
}

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

class ShmBackend final : public Backend {
 public:
  ShmBackend(const BackendRequest& request, std::unique_ptr<Communicator> communicator)
      : Backend(request.name, std::string(layout::Shm::row.name), request.rank, request.size, c10::kCPU),
        work_queue_(std::make_shared<WorkQueue>(std::move(communicator))) {}

  bool can_reduce(at::ScalarType dtype) const override { return number_of(dtype).has_value(); }

  void announce(const Entry& entry) override { announced_ = entry; }

  Started broadcast(at::Tensor tensor, int root) override {
    return collective(Op::broadcast, tensor, at::Tensor(), tensor, root);
  }
  Started reduce(at::Tensor tensor, int root, Reduction op) override {
    return collective(Op::reduce, tensor, at::Tensor(), tensor, root, op);
  }
  Started all_reduce(at::Tensor tensor, Reduction op) override {
    return collective(Op::all_reduce, tensor, at::Tensor(), tensor, -1, op);
  }
  Started scatter(at::Tensor output, at::Tensor input, int root) override {
    return collective(Op::scatter, output, input, output, root);
  }
  Started gather(at::Tensor output, at::Tensor input, int root) override {
    return collective(Op::gather, output, input, input, root);
  }
  Started all_gather(at::Tensor output, at::Tensor input) override {
    return collective(Op::all_gather, output, input, input, -1);
  }
  Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) override {
    return collective(Op::reduce_scatter, output, input, output, -1, op);
  }

  Started accumulate(at::Tensor accumulator, at::Tensor input) override {
    return accumulation(Op::all_reduce, accumulator, input, input.nbytes());
  }
  Started accumulate_scatter(at::Tensor accumulator, at::Tensor input) override {
    return accumulation(Op::reduce_scatter, accumulator, input, input.nbytes() / static_cast<std::size_t>(size()));
  }

  Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                     std::vector<std::int64_t> input_splits) override {
    Operation operation = make(Op::all_to_all, output, input, output, -1);
    const auto width = static_cast<std::size_t>(output.element_size());
    for (const std::int64_t n : output_splits) operation.output_splits.push_back(static_cast<std::size_t>(n) * width);
    for (const std::int64_t n : input_splits) operation.input_splits.push_back(static_cast<std::size_t>(n) * width);
    return begin(std::move(operation));
  }

  Started send(at::Tensor tensor, int destination, int tag) override {
    return message(Op::send, tensor, destination, tag);
  }
  Started recv(at::Tensor tensor, int source, int tag) override { return message(Op::recv, tensor, source, tag); }

  Started barrier() override { return begin(make(Op::barrier, at::Tensor(), at::Tensor(), at::Tensor(), -1)); }

  void abort(const std::string& why) override { work_queue_->communicator().fail(why); }
  void close() override { work_queue_->close(); }

 private:
  // Returns the record that Group announced, or a new record if the caller uses the backend directly.
  Entry take_entry(Op op, const at::Tensor& part, int root, const char* reduction) {
    if (announced_ && announced_->op == op) return *std::exchange(announced_, std::nullopt);
    announced_.reset();
    Entry entry;
    entry.op = op;
    const bool message = op == Op::send || op == Op::recv;
    entry.sequence = message ? own_messages_++ : own_collectives_++;
    entry.group_size = size();
    entry.peer = root;
    if (part.defined()) {
      entry.numel = part.numel();
      entry.payload_bytes = static_cast<std::int64_t>(part.nbytes());
      launch::write_text(entry.dtype, c10::toString(part.scalar_type()));
    }
    launch::write_text(entry.reduction, reduction);
    launch::write_text(entry.group, name());
    const auto dtype = part.defined() ? static_cast<std::uint64_t>(part.scalar_type()) + 1 : 0;
    const std::uint64_t sizes = op == Op::all_to_all ? 0 : static_cast<std::uint64_t>(entry.numel);
    for (const std::uint64_t value : {static_cast<std::uint64_t>(op), dtype, sizes,
                                      static_cast<std::uint64_t>(root + 1), static_cast<std::uint64_t>(*reduction)}) {
      entry.fingerprint = (entry.fingerprint ^ value) * 0x9e3779b97f4a7c15ULL + 1;
    }
    return entry;
  }

  // `part`: the smaller tensor, of n elements.
  Operation make(Op op, const at::Tensor& output, const at::Tensor& input, const at::Tensor& part, int root,
                 const char* reduction = "") {
    Operation operation;
    operation.entry = take_entry(op, part, root, reduction);
    operation.input = bytes_of(input);
    operation.output = bytes_of(output);
    operation.part_bytes = part.defined() ? part.nbytes() : 0;
    operation.root = root;
    operation.keep = std::make_shared<std::pair<at::Tensor, at::Tensor>>(output, input);
    return operation;
  }

  Started begin(Operation operation) {
    return std::make_shared<QueuedPending<WorkQueue::Task>>(work_queue_, work_queue_->start(std::move(operation)));
  }

  Started collective(Op op, const at::Tensor& output, const at::Tensor& input, const at::Tensor& part, int root) {
    return begin(make(op, output, input, part, root));
  }

  Started collective(Op op, const at::Tensor& output, const at::Tensor& input, const at::Tensor& part, int root,
                     Reduction reduction) {
    Operation operation = make(op, output, input, part, root, reduction_name(reduction));
    operation.number = number_of(part.scalar_type()).value();
    operation.fold = fold_of(reduction);
    return begin(std::move(operation));
  }

  Started accumulation(Op op, const at::Tensor& accumulator, const at::Tensor& input, std::size_t part_bytes) {
    Operation operation = make(op, accumulator, input, accumulator, -1, "fold");
    operation.number = number_of(input.scalar_type()).value();
    operation.accumulates = true;
    operation.part_bytes = part_bytes;
    return begin(std::move(operation));
  }

  Started message(Op op, const at::Tensor& tensor, int peer, int tag) {
    Operation operation = make(op, tensor, at::Tensor(), tensor, peer);
    operation.tag = tag;
    return std::make_shared<QueuedPending<Message>>(work_queue_, work_queue_->start_message(std::move(operation)));
  }

  std::shared_ptr<WorkQueue> work_queue_;
  std::optional<Entry> announced_;
  std::uint64_t own_collectives_ = 0, own_messages_ = 0;
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
