#include <ATen/core/Tensor.h>

#include <tessera/layout/backends.h>

#include <tests/double/mirrors.h>
#include <tests/double/nccl.h>
#include <tests/double/order.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace cuda_double {
namespace {

using Transport = tessera::comm::Backend;  // through shared host memory
using Started = std::shared_ptr<tessera::comm::Pending>;
using tessera::comm::Reduction;
using Tensors = std::vector<at::Tensor>;
using Future = c10::intrusive_ptr<c10d::Work>;

int wait_to_skip() {
  static const char* text = std::getenv("DOUBLE_SKIP_WAIT");
  return text == nullptr ? -1 : std::atoi(text);
}

class Work final : public c10d::Work {
 public:
  Work(const char* name, int device, void* done, Started started, Tensors tensors)
      : name_(name), device_(device), done_(done), started_(std::move(started)), tensors_(std::move(tensors)) {}
  ~Work() override { event_destroy(done_); }
  bool isCompleted() override { return waited_ || started_->done(); }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override {
    static std::atomic<int> count{0};
    if (!waited_) started_->wait();
    waited_ = true;
    if (count++ == wait_to_skip()) {
      std::fprintf(stderr, "the double of the device leaves out the wait for %s\n", name_);
    } else {
      event_block(done_, device_, current_stream(device_));
    }
    tensors_.clear();
    return true;
  }
  void synchronize() override { wait(std::chrono::milliseconds(0)); }

 private:
  const char* name_;
  int device_;
  void* done_;       // event recorded after the collective
  Started started_;  // never null
  Tensors tensors_;  // keeps the memory alive until the wait
  bool waited_ = false;
};

Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return Reduction::sum;
    case c10d::ReduceOp::MIN:
      return Reduction::min;
    case c10d::ReduceOp::MAX:
      return Reduction::max;
    case c10d::ReduceOp::PRODUCT:
      return Reduction::product;
    default:
      TORCH_CHECK(false, "the double's NCCL has no such reduction");
  }
}

class Nccl final : public c10d::Backend {
 public:
  Nccl(std::shared_ptr<Transport> transport, c10::Device device)
      : c10d::Backend(transport->rank(), transport->size()),
        transport_(std::move(transport)),
        device_(device.index()),
        stream_(new_stream()) {}
  const std::string getBackendName() const override { return "nccl"; }

  Future broadcast(Tensors& t, const c10d::BroadcastOptions& options) override {
    const bool root = options.rootRank == getRank();
    return run("ncclBroadcast", root ? t : Tensors{}, root ? Tensors{} : t,
               [&] { return transport_->broadcast(host_view(t[0]), static_cast<int>(options.rootRank)); });
  }
  Future reduce(Tensors& t, const c10d::ReduceOptions& options) override {
    return run("ncclReduce", t, t, [&] {
      return transport_->reduce(host_view(t[0]), static_cast<int>(options.rootRank), reduction_of(options.reduceOp));
    });
  }
  Future allreduce(Tensors& t, const c10d::AllreduceOptions& options) override {
    return run("ncclAllReduce", t, t,
               [&] { return transport_->all_reduce(host_view(t[0]), reduction_of(options.reduceOp)); });
  }
  Future _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions&) override {
    return run("ncclAllGather", {in}, {out}, [&] { return transport_->all_gather(host_view(out), host_view(in)); });
  }
  Future _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override {
    return run("ncclReduceScatter", {in}, {out}, [&] {
      return transport_->reduce_scatter(host_view(out), host_view(in), reduction_of(options.reduceOp));
    });
  }
  Future alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& outs, std::vector<std::int64_t>& ins,
                       const c10d::AllToAllOptions&) override {
    const auto sizes = [&](const std::vector<std::int64_t>& given, const at::Tensor& t) {
      if (!given.empty()) return given;
      return std::vector<std::int64_t>(static_cast<std::size_t>(getSize()), t.numel() / getSize());
    };
    return run("ncclAllToAll", {in}, {out},
               [&] { return transport_->all_to_all(host_view(out), host_view(in), sizes(outs, out), sizes(ins, in)); });
  }
  Future gather(std::vector<Tensors>& outs, Tensors& in, const c10d::GatherOptions& options) override {
    const bool root = options.rootRank == getRank();
    return run("ncclGather", in, root ? outs.at(0) : Tensors{}, [&] {
      return transport_->gather(root ? whole(outs[0]) : at::Tensor(), host_view(in[0]),
                                static_cast<int>(options.rootRank));
    });
  }
  Future scatter(Tensors& out, std::vector<Tensors>& ins, const c10d::ScatterOptions& options) override {
    const bool root = options.rootRank == getRank();
    return run("ncclScatter", root ? ins.at(0) : Tensors{}, out, [&] {
      return transport_->scatter(host_view(out[0]), root ? whole(ins[0]) : at::Tensor(),
                                 static_cast<int>(options.rootRank));
    });
  }
  Future send(Tensors& t, int to, int tag) override {
    return run("ncclSend", t, {}, [&] { return transport_->send(host_view(t[0]), to, tag); });
  }
  Future recv(Tensors& t, int from, int tag) override {
    return run("ncclRecv", {}, t, [&] { return transport_->recv(host_view(t[0]), from, tag); });
  }
  Future barrier(const c10d::BarrierOptions&) override {
    return run("ncclBarrier", {}, {}, [&] { return transport_->barrier(); });
  }
  void abort() override { transport_->abort("aborted"); }
  void shutdown() override { transport_->close(); }

 private:
  /// The tensor that `chunks` divide into equal, adjacent parts.
  at::Tensor whole(const Tensors& chunks) const {
    const at::Tensor first = host_view(chunks.front());
    return first.as_strided({first.numel() * getSize()}, {1});
  }

  template <class Start>
  Future run(const char* name, const Tensors& in, const Tensors& out, Start start) {
    Tensors tensors;
    std::vector<Access> accesses;
    for (const Tensors* list : {&in, &out}) {
      for (const at::Tensor& t : *list) {
        TORCH_CHECK(t.is_cuda() && t.device().index() == device_, "ncclInvalidArgument: a tensor on ", t.device(),
                    " in a communicator of cuda:", device_);
        TORCH_CHECK(t.is_contiguous(), "Tensors must be contiguous");
        add_accesses(t, list == &out, accesses);
        tensors.push_back(t);
      }
    }
    count_operation(name, {.bytes = bytes_of(accesses)});
    void* ready = event_record(nullptr, device_, current_stream(device_));
    event_block(ready, device_, stream_);
    event_destroy(ready);
    enqueue(name, device_, stream_, accesses);
    void* done = event_record(nullptr, device_, stream_);
    return c10::make_intrusive<Work>(name, device_, done, start(), std::move(tensors));
  }

  std::shared_ptr<Transport> transport_;
  int device_;
  std::int64_t stream_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl(const tessera::comm::BackendRequest& request) {
  tessera::comm::BackendRequest host = request;
  host.device = c10::kCPU;
  return c10::make_intrusive<Nccl>(tessera::layout::Shm::make(host), request.device);
}

}  // namespace cuda_double
