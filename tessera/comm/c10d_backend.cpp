#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/comm/c10d_backend.h>

#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace tessera::comm {
namespace {

using C10dWork = c10::intrusive_ptr<c10d::Work>;

void wait_for(const C10dWork& work) {
  if (!work->wait()) throw Error("the operation was aborted");
}

// A collective; `finish` turns the raw result into the caller's output.
class CollectivePending final : public Pending {
 public:
  CollectivePending(C10dWork work, std::vector<at::Tensor> tensors, std::function<void()> finish)
      : work_(std::move(work)), tensors_(std::move(tensors)), finish_(std::move(finish)) {}

  void wait() override {
    wait_for(work_);
    if (finish_) finish_();
  }
  bool done() override { return work_->isCompleted(); }

 private:
  C10dWork work_;
  std::vector<at::Tensor> tensors_;
  std::function<void()> finish_;
};

// A send or recv. c10d learns of its end only inside wait(), so the first question whether it is done hands the waiting
// to a thread.
class MessagePending final : public Pending {
 public:
  MessagePending(C10dWork work, at::Tensor tensor) : work_(std::move(work)), tensor_(std::move(tensor)) {}

  void wait() override {
    if (waiting_.valid()) {
      waiting_.get();
    } else {
      wait_for(work_);
    }
  }
  bool done() override {
    if (work_->isCompleted()) return true;
    if (!waiting_.valid()) {
      std::packaged_task<void()> task([work = work_, tensor = tensor_] { wait_for(work); });
      waiting_ = task.get_future();
      std::thread(std::move(task)).detach();
    }
    return waiting_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  C10dWork work_;
  at::Tensor tensor_;
  std::future<void> waiting_;
};

// [n] bytes of a contiguous tensor, whatever its dtype.
at::Tensor bytes(const at::Tensor& tensor) { return tensor.view(-1).view(at::kByte); }

c10d::ReduceOp c10d_reduction(Reduction op) {
  switch (op) {
    case Reduction::sum:
    case Reduction::mean:
      return c10d::ReduceOp::SUM;  // the division follows: Gloo's AVG rejects integers and fp16 overflows
    case Reduction::min:
      return c10d::ReduceOp::MIN;
    case Reduction::max:
      return c10d::ReduceOp::MAX;
    case Reduction::product:
      return c10d::ReduceOp::PRODUCT;
  }
  throw Error("unknown reduction");
}

void announce_half_reduction(const std::string& kind, int rank) {
  static std::once_flag once;
  std::call_once(once, [&] {
    if (rank == 0) log::info("bf16/fp16 reductions over ", kind, " are sent as fp32, twice the bytes");
  });
}

class C10dBackend final : public Backend {
 public:
  C10dBackend(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options)
      : Backend(options.name, options.kind, backend->getRank(), backend->getSize(), options.device),
        backend_(std::move(backend)),
        reduce_half_as_float_(options.reduce_half_as_float),
        owner_(std::move(options.owner)) {}

  bool can_reduce(at::ScalarType dtype) const override {
    switch (dtype) {
      case at::kFloat:
      case at::kDouble:
      case at::kHalf:
      case at::kBFloat16:
      case at::kChar:
      case at::kByte:
      case at::kInt:
      case at::kLong:
        return true;
      default:
        return false;
    }
  }

  Started broadcast(at::Tensor tensor, int root) override {
    std::vector<at::Tensor> raw{bytes(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return collective(open().broadcast(raw, options), {tensor});
  }

  Started reduce(at::Tensor tensor, int root, Reduction op) override {
    // The transport may use the tensor of any rank as scratch; only the root's may change.
    const bool is_root = rank() == root;
    std::vector<at::Tensor> raw{is_root ? working_copy_if_half(tensor) : working_copy(tensor)};
    c10d::ReduceOptions options;
    options.rootRank = root;
    options.reduceOp = c10d_reduction(op);
    C10dWork work = open().reduce(raw, options);
    if (!is_root) return collective(std::move(work), raw);
    return collective(std::move(work), {tensor, raw[0]}, finish_reduction(tensor, raw[0], op));
  }

  Started all_reduce(at::Tensor tensor, Reduction op) override {
    std::vector<at::Tensor> raw{working_copy_if_half(tensor)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d_reduction(op);
    C10dWork work = open().allreduce(raw, options);
    return collective(std::move(work), {tensor, raw[0]}, finish_reduction(tensor, raw[0], op));
  }

  Started scatter(at::Tensor output, at::Tensor input, int root) override {
    std::vector<at::Tensor> outputs{bytes(output)};
    std::vector<std::vector<at::Tensor>> inputs;
    if (rank() == root) inputs.push_back(bytes(input).chunk(size()));
    c10d::ScatterOptions options;
    options.rootRank = root;
    return collective(open().scatter(outputs, inputs, options), {output, input});
  }

  Started gather(at::Tensor output, at::Tensor input, int root) override {
    std::vector<at::Tensor> inputs{bytes(input)};
    std::vector<std::vector<at::Tensor>> outputs;
    if (rank() == root) outputs.push_back(bytes(output).chunk(size()));
    c10d::GatherOptions options;
    options.rootRank = root;
    return collective(open().gather(outputs, inputs, options), {output, input});
  }

  Started all_gather(at::Tensor output, at::Tensor input) override {
    at::Tensor raw_output = bytes(output), raw_input = bytes(input);
    return collective(open()._allgather_base(raw_output, raw_input), {output, input});
  }

  // Gloo's own reduce_scatter is an all-reduce too, but of the input itself and finished only in its wait().
  Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) override {
    std::vector<at::Tensor> raw{working_copy(input)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d_reduction(op);
    C10dWork work = open().allreduce(raw, options);
    const at::Tensor mine = raw[0].narrow(0, rank() * output.numel(), output.numel());
    return collective(std::move(work), {output, input, raw[0]}, finish_reduction(output, mine, op));
  }

  Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                     std::vector<std::int64_t> input_splits) override {
    const auto width = static_cast<std::int64_t>(output.element_size());
    for (std::int64_t& n : output_splits) n *= width;
    for (std::int64_t& n : input_splits) n *= width;
    at::Tensor raw_output = bytes(output), raw_input = bytes(input);
    return collective(open().alltoall_base(raw_output, raw_input, output_splits, input_splits), {output, input});
  }

  Started send(at::Tensor tensor, int destination, int tag) override {
    std::vector<at::Tensor> raw{bytes(tensor)};
    return std::make_shared<MessagePending>(open().send(raw, destination, tag), tensor);
  }

  Started recv(at::Tensor tensor, int source, int tag) override {
    std::vector<at::Tensor> raw{bytes(tensor)};
    return std::make_shared<MessagePending>(open().recv(raw, source, tag), tensor);
  }

  Started barrier() override { return collective(open().barrier(), {}); }

  void close() override {
    backend_.reset();
    owner_.reset();
  }

 private:
  c10d::Backend& open() const {
    if (!backend_) throw Error("the group was closed by shutdown()");
    return *backend_;
  }

  static Started collective(C10dWork work, std::vector<at::Tensor> tensors, std::function<void()> finish = {}) {
    return std::make_shared<CollectivePending>(std::move(work), std::move(tensors), std::move(finish));
  }

  at::ScalarType reduction_dtype(const at::Tensor& tensor) const {
    const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
    if (!half || !reduce_half_as_float_) return tensor.scalar_type();
    announce_half_reduction(kind(), rank());
    return at::kFloat;
  }
  // [n], never the caller's memory.
  at::Tensor working_copy(const at::Tensor& tensor) const {
    return tensor.view(-1).to(reduction_dtype(tensor), /*non_blocking=*/false, /*copy=*/true);
  }
  // [n], the caller's memory unless the dtype must change.
  at::Tensor working_copy_if_half(const at::Tensor& tensor) const {
    return tensor.view(-1).to(reduction_dtype(tensor));
  }

  // Divides (mean) in the wide type, then stores into the caller's tensor if `result` is not already there.
  std::function<void()> finish_reduction(const at::Tensor& target, const at::Tensor& result, Reduction op) const {
    const bool divide = op == Reduction::mean;
    const bool store = result.data_ptr() != target.data_ptr();
    if (!divide && !store) return {};
    return [target = target.view(-1), result, divide, store, ranks = size()]() mutable {
      if (divide) result.div_(ranks);
      if (store) target.copy_(result);
    };
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  bool reduce_half_as_float_;
  std::shared_ptr<void> owner_;
};

}  // namespace

std::shared_ptr<Backend> make_c10d_backend(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options) {
  TESSERA_CHECK(backend != nullptr, "group '", options.name, "' has no c10d backend");
  return std::make_shared<C10dBackend>(std::move(backend), std::move(options));
}

Group Group::adopt(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::string& name) {
  if (!group) throw InputError("Group::adopt: the process group is null.");
  const std::vector<c10::Device> devices = group->getDeviceTypes();
  if (devices.empty())
    throw InputError(concat("Group::adopt('", name, "'): the process group has no backend; call setBackend first."));
  // A group for both CPU and CUDA tensors is taken for the accelerator.
  c10::Device device = devices.front();
  for (const c10::Device& candidate : devices) {
    if (!candidate.is_cpu()) device = candidate;
  }
  c10::intrusive_ptr<c10d::Backend> backend = group->getBackend(device.type());
  C10dOptions options;
  options.name = name;
  options.kind = to_lower(backend->getBackendName());
  options.device = device;
  options.reduce_half_as_float = options.kind != "nccl";
  options.owner = std::make_shared<c10::intrusive_ptr<c10d::ProcessGroup>>(std::move(group));
  return Group(make_c10d_backend(std::move(backend), std::move(options)));
}

}  // namespace tessera::comm
