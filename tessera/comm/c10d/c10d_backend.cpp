#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/system/quiet_thread.h>
#include <tessera/comm/c10d/c10d_backend.h>
#include <tessera/comm/c10d/c10d_wait.h>
#include <tessera/comm/c10d/ring_link.h>
#include <tessera/comm/kernel_types.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/ring/queue.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace tessera::comm {
namespace {

using C10dWork = c10::intrusive_ptr<c10d::Work>;

// Gloo's waits block this thread, so a reason to stop must end them; an accelerator's waits only order streams.
void wait_for(const C10dWork& work, bool blocks) {
  if (blocks) {
    wait_for_collective(work);
  } else if (!work->wait()) {
    throw Error("the operation was aborted");
  }
}

// A collective; `finish` turns the raw result into the caller's output.
class CollectivePending final : public Pending {
 public:
  CollectivePending(C10dWork work, bool blocks, std::vector<at::Tensor> tensors, std::function<void()> finish)
      : work_(std::move(work)), blocks_(blocks), tensors_(std::move(tensors)), finish_(std::move(finish)) {}

  void wait() override {
    wait_for(work_, blocks_);
    if (finish_) finish_();
  }
  bool done() override { return work_->isCompleted(); }

 private:
  C10dWork work_;
  bool blocks_;
  // Kept alive until the caller's stream has passed the work: the allocator must not reuse their memory earlier (no
  // recordStream).
  std::vector<at::Tensor> tensors_;
  std::function<void()> finish_;
};

// A send or recv of Gloo. c10d notices its end only inside wait(), so the first call of done() starts a thread that
// waits.
class MessagePending final : public Pending {
 public:
  MessagePending(C10dWork work, at::Tensor tensor, std::shared_ptr<MessageWaiter> waiter)
      : work_(std::move(work)), tensor_(std::move(tensor)), waiter_(std::move(waiter)) {}

  void wait() override {
    if (waiting_.valid()) {
      waiting_.get();
    } else {
      waiter_->wait(work_);
    }
  }
  bool done() override {
    if (work_->isCompleted()) return true;
    if (!waiting_.valid()) {
      std::packaged_task<void()> task([work = work_, tensor = tensor_, waiter = waiter_] { waiter->wait(work); });
      waiting_ = task.get_future();
      std::thread(std::move(task)).detach();
    }
    return waiting_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  C10dWork work_;
  at::Tensor tensor_;
  std::shared_ptr<MessageWaiter> waiter_;
  std::future<void> waiting_;
};

// [n] bytes of a contiguous tensor, whatever its dtype.
at::Tensor bytes(const at::Tensor& tensor) { return tensor.view(-1).view(at::kByte); }

c10d::ReduceOp c10d_reduction(Reduction op) {
  switch (op) {
    case Reduction::sum:
    case Reduction::mean:
      return c10d::ReduceOp::SUM;  // a mean is divided afterwards: Gloo's AVG rejects integers, and fp16 would overflow
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
    if (rank == 0) log::info("bf16/fp16 reductions over ", kind, " are sent as fp32, which doubles the bytes");
  });
}

class C10dBackend final : public Backend {
 public:
  C10dBackend(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options)
      : Backend(options.name, options.kind, backend->getRank(), backend->getSize(), options.device),
        backend_(std::move(backend)),
        own_collectives_(options.own_collectives),
        choice_(options.choice),
        owner_(std::move(options.owner)) {
    TESSERA_CHECK(!own_collectives_ || options.device.is_cpu(), "own collectives are for CPU tensors");
  }

  bool can_reduce(at::ScalarType dtype) const override { return number_of(dtype).has_value(); }

  Started broadcast(at::Tensor tensor, int root) override {
    const std::vector<at::Tensor> tensors{tensor};
    return collective(
        [raw = std::vector<at::Tensor>{bytes(tensor)}, root](c10d::Backend& backend) mutable {
          c10d::BroadcastOptions options;
          options.rootRank = root;
          return backend.broadcast(raw, options);
        },
        tensors);
  }

  Started reduce(at::Tensor tensor, int root, Reduction op) override {
    // The transport may use any rank's tensor as scratch, so ranks other than the root pass a copy.
    const bool is_root = rank() == root;
    std::vector<at::Tensor> raw{is_root ? working_copy_if_half(tensor) : working_copy(tensor)};
    report_moved(wire_bytes(Op::reduce, static_cast<std::int64_t>(raw[0].nbytes()), size()));
    const std::function<void()> finish = is_root ? finish_reduction(tensor, raw[0], op) : std::function<void()>();
    const std::vector<at::Tensor> tensors{tensor, raw[0]};
    return collective(
        [raw, root, op](c10d::Backend& backend) mutable {
          c10d::ReduceOptions options;
          options.rootRank = root;
          options.reduceOp = c10d_reduction(op);
          return backend.reduce(raw, options);
        },
        tensors, finish);
  }

  Started all_reduce(at::Tensor tensor, Reduction op) override {
    if (const auto choice = choose(ring::Collective::all_reduce, tensor)) return own(*choice, tensor, tensor, op);
    const at::Tensor raw = working_copy_if_half(tensor);
    report_moved(wire_bytes(Op::all_reduce, static_cast<std::int64_t>(raw.nbytes()), size()));
    return collective([raw, op](c10d::Backend& backend) { return all_reduce_raw(backend, raw, op); }, {tensor, raw},
                      finish_reduction(tensor, raw, op));
  }

  Started scatter(at::Tensor output, at::Tensor input, int root) override {
    return collective(
        [this, output, input, root](c10d::Backend& backend) {
          std::vector<at::Tensor> outputs{bytes(output)};
          std::vector<std::vector<at::Tensor>> inputs;
          if (rank() == root) inputs.push_back(bytes(input).chunk(size()));
          c10d::ScatterOptions options;
          options.rootRank = root;
          return backend.scatter(outputs, inputs, options);
        },
        {output, input});
  }

  Started gather(at::Tensor output, at::Tensor input, int root) override {
    return collective(
        [this, output, input, root](c10d::Backend& backend) {
          std::vector<at::Tensor> inputs{bytes(input)};
          std::vector<std::vector<at::Tensor>> outputs;
          if (rank() == root) outputs.push_back(bytes(output).chunk(size()));
          c10d::GatherOptions options;
          options.rootRank = root;
          return backend.gather(outputs, inputs, options);
        },
        {output, input});
  }

  Started all_gather(at::Tensor output, at::Tensor input) override {
    if (const auto choice = choose(ring::Collective::all_gather, output))
      return own(*choice, output, input, Reduction::sum);
    return collective(
        [output, input](c10d::Backend& backend) {
          at::Tensor raw_output = bytes(output), raw_input = bytes(input);
          return backend._allgather_base(raw_output, raw_input);
        },
        {output, input});
  }

  Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) override {
    if (const auto choice = choose(ring::Collective::reduce_scatter, input)) return own(*choice, output, input, op);
    if (!device().is_cpu()) {
      const at::Tensor raw = working_copy_if_half(input);
      const at::Tensor part =
          raw.scalar_type() == output.scalar_type() ? output.view(-1) : at::empty({output.numel()}, raw.options());
      return collective(
          [part, raw, op](c10d::Backend& backend) {
            at::Tensor target = part, source = raw;
            c10d::ReduceScatterOptions options;
            options.reduceOp = c10d_reduction(op);
            return backend._reduce_scatter_base(target, source, options);
          },
          {output, input, raw, part}, finish_reduction(output, part, op));
    }
    // Gloo's own reduce_scatter is also an all-reduce, but it works in place on the input and finishes only in its
    // wait().
    const at::Tensor raw = working_copy(input), mine = raw.narrow(0, rank() * output.numel(), output.numel());
    report_moved(wire_bytes(Op::all_reduce, static_cast<std::int64_t>(raw.nbytes()), size()));
    return collective([raw, op](c10d::Backend& backend) { return all_reduce_raw(backend, raw, op); },
                      {output, input, raw}, finish_reduction(output, mine, op));
  }

  Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                     std::vector<std::int64_t> input_splits) override {
    const auto width = static_cast<std::int64_t>(output.element_size());
    for (std::int64_t& n : output_splits) n *= width;
    for (std::int64_t& n : input_splits) n *= width;
    return collective(
        [output, input, output_splits, input_splits](c10d::Backend& backend) mutable {
          at::Tensor raw_output = bytes(output), raw_input = bytes(input);
          return backend.alltoall_base(raw_output, raw_input, output_splits, input_splits);
        },
        {output, input});
  }

  Started send(at::Tensor tensor, int destination, int tag) override {
    check_tag(tag);
    std::vector<at::Tensor> raw{bytes(tensor)};
    return message(open().send(raw, destination, tag), tensor);
  }

  Started recv(at::Tensor tensor, int source, int tag) override {
    check_tag(tag);
    std::vector<at::Tensor> raw{bytes(tensor)};
    return message(open().recv(raw, source, tag), tensor);
  }

  Started barrier() override {
    return collective([](c10d::Backend& backend) { return backend.barrier(); }, {});
  }

  void abort(const std::string&) override {
    if (!backend_ || aborted_.exchange(true)) return;
    waiter_->abort();
    if (!device().is_cpu()) {
      backend_->abort();
    } else if (backend_->getBackendName() == "gloo") {
      close_connections();
    }
  }

  void close() override {
    queue_.reset();
    last_.reset();
    // Without this, ProcessGroupNCCL's destructor warns and aborts the operations in flight.
    if (backend_ && !device().is_cpu() && !aborted_) backend_->shutdown();
    backend_.reset();
    owner_.reset();
  }

 private:
  c10d::Backend& open() const {
    if (!backend_) throw Error("the group was closed by shutdown()");
    return *backend_;
  }

  using Begin = std::function<C10dWork(c10d::Backend&)>;

  // Gloo closes all connections of a group when a wait for a message times out: the operations of the peers and of this
  // rank then fail at once. Runs in a thread because, after a crash inside Gloo, its locks may never be released.
  void close_connections() {
    quiet_thread("tessera-abort", [backend = backend_, peer = (rank() + 1) % size()] {
      std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
      try {
        backend->recv(nothing, peer, ring::abort_tag)->wait(std::chrono::milliseconds(1));
      } catch (const std::exception&) {
        // The expected timeout, or the connections are already closed.
      }
    }).detach();
  }

  static C10dWork all_reduce_raw(c10d::Backend& backend, const at::Tensor& raw, Reduction op) {
    std::vector<at::Tensor> tensors{raw};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d_reduction(op);
    return backend.allreduce(tensors, options);
  }

  // Starts one of the transport's own collectives. A group's operations run in the order in which they were started, so
  // it is queued behind those of ring/.
  Started collective(const Begin& begin, std::vector<at::Tensor> tensors, std::function<void()> finish = {}) {
    c10d::Backend& backend = open();
    if (!queue_ || queue_->idle()) {
      last_ = begin(backend);
      return std::make_shared<CollectivePending>(last_, device().is_cpu(), std::move(tensors), std::move(finish));
    }
    return queue_->push([begin, finish, keep = std::move(tensors), backend = backend_] {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      wait_for_collective(begin(*backend));
      if (finish) finish();
    });
  }

  Started message(C10dWork work, const at::Tensor& tensor) {
    if (device().is_cpu()) return std::make_shared<MessagePending>(std::move(work), tensor, waiter_);
    return std::make_shared<CollectivePending>(std::move(work), false, std::vector<at::Tensor>{tensor},
                                               std::function<void()>());
  }

  void check_tag(int tag) const {
    if (own_collectives_ && tag >= ring::first_own_tag)
      throw Error(concat("tag ", tag, " is reserved; message tags must be below ", ring::first_own_tag));
  }

  // `whole`: the tensor that contains all ranks' parts.
  std::optional<ring::Choice> choose(ring::Collective what, const at::Tensor& whole) const {
    if (!own_collectives_) return std::nullopt;
    if (choice_ && ring::implements(choice_->algorithm, what)) return choice_;
    const bool half = whole.scalar_type() == at::kHalf || whole.scalar_type() == at::kBFloat16;
    return ring::choose(what, static_cast<std::int64_t>(whole.nbytes()), size(), half);
  }

  // Starts a collective of ring/. Its kind follows from the tensors: `output` and `input` are one tensor (all_reduce),
  // or the larger one contains all ranks' parts.
  Started own(const ring::Choice& choice, const at::Tensor& output, const at::Tensor& input, Reduction op) {
    open();
    ring::Job job;
    job.rank = rank();
    job.size = size();
    job.algorithm = choice.algorithm;
    job.chunk_bytes = choice.chunk_bytes;
    job.window = choice.window;
    job.input = input.const_data_ptr();
    job.output = output.mutable_data_ptr();
    job.fold = fold_of(op);
    if (output.numel() > input.numel()) {
      job.collective = ring::Collective::all_gather;
      job.number = kernels::Number::uint8;
      job.n = static_cast<std::int64_t>(input.nbytes());
    } else {
      job.collective = output.numel() < input.numel() ? ring::Collective::reduce_scatter : ring::Collective::all_reduce;
      job.number = *number_of(output.scalar_type());
      job.n = output.numel();
    }
    if (!queue_) queue_ = std::make_unique<ring::Queue>();
    const int tag = ring::first_own_tag + static_cast<int>(own_started_++ % 4096);
    return queue_->push([job, tag, output, input, before = std::exchange(last_, {}), backend = backend_,
                         waiter = waiter_, scratch = scratch_] {
      if (before && !before->isCompleted()) wait_for_collective(before);
      ring::C10dLink link(*backend, *waiter, tag);
      ring::run(job, link, *scratch);
    });
  }

  at::ScalarType reduction_dtype(const at::Tensor& tensor) const {
    const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
    if (!half || capabilities().reduces_halves) return tensor.scalar_type();
    announce_half_reduction(kind(), rank());
    return at::kFloat;
  }
  // [n], always a copy.
  at::Tensor working_copy(const at::Tensor& tensor) const {
    return tensor.view(-1).to(reduction_dtype(tensor), /*non_blocking=*/false, /*copy=*/true);
  }
  // [n], the caller's memory unless the dtype must change.
  at::Tensor working_copy_if_half(const at::Tensor& tensor) const {
    return tensor.view(-1).to(reduction_dtype(tensor));
  }

  // Divides in the wide type (mean), then copies to the caller's tensor if `result` is not already that tensor.
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
  bool own_collectives_;
  std::optional<ring::Choice> choice_;
  std::shared_ptr<void> owner_;
  C10dWork last_;  // the most recently started collective of the transport's own
  std::shared_ptr<MessageWaiter> waiter_ = std::make_shared<MessageWaiter>();
  std::shared_ptr<ring::Scratch> scratch_ = std::make_shared<ring::Scratch>();
  std::uint64_t own_started_ = 0;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<ring::Queue> queue_;  // destroyed first: its thread uses the other members
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
  // A group for both CPU and CUDA tensors counts as an accelerator group.
  c10::Device device = devices.front();
  for (const c10::Device& candidate : devices) {
    if (!candidate.is_cpu()) device = candidate;
  }
  c10::intrusive_ptr<c10d::Backend> backend = group->getBackend(device.type());
  C10dOptions options;
  options.name = name;
  options.kind = to_lower(backend->getBackendName());
  options.device = device;
  options.owner = std::make_shared<c10::intrusive_ptr<c10d::ProcessGroup>>(std::move(group));
  return Group(make_c10d_backend(std::move(backend), std::move(options)));
}

}  // namespace tessera::comm
