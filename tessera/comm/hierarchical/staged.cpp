#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/comm/hierarchical/staged.h>

#include <functional>

namespace tessera::comm::hier {
namespace {

class StagedPending final : public Pending {
 public:
  StagedPending(Backend::Started inner, std::vector<at::Tensor> tensors, std::function<void()> finish)
      : inner_(std::move(inner)), tensors_(std::move(tensors)), finish_(std::move(finish)) {}
  void wait() override {
    if (inner_) inner_->wait();
    finish_();
  }
  bool done() override { return !inner_ || inner_->done(); }

 private:
  Backend::Started inner_;
  std::vector<at::Tensor> tensors_;
  std::function<void()> finish_;
};

at::Tensor to_host(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}
at::Tensor host_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), at::TensorOptions(at::kCPU).dtype(tensor.scalar_type()));
}

class StagedBackend final : public Backend {
 public:
  StagedBackend(std::shared_ptr<Backend> host, c10::Device device)
      : Backend(host->name(), concat("staged/", host->kind()), host->rank(), host->size(), device),
        host_(std::move(host)) {}

  bool can_reduce(at::ScalarType dtype) const override { return host_->can_reduce(dtype); }
  void announce(const launch::Entry& entry) override { host_->announce(entry); }

  Started broadcast(at::Tensor tensor, int root) override {
    const at::Tensor host = rank() == root ? to_host(tensor) : host_like(tensor);
    return back(host_->broadcast(host, root), tensor, host, rank() != root);
  }
  Started reduce(at::Tensor tensor, int root, Reduction op) override {
    const at::Tensor host = to_host(tensor);
    return back(host_->reduce(host, root, op), tensor, host, rank() == root);
  }
  Started all_reduce(at::Tensor tensor, Reduction op) override {
    const at::Tensor host = to_host(tensor);
    return back(host_->all_reduce(host, op), tensor, host);
  }
  Started scatter(at::Tensor output, at::Tensor input, int root) override {
    const at::Tensor host = host_like(output);
    return back(host_->scatter(host, rank() == root ? to_host(input) : at::Tensor(), root), output, host);
  }
  Started gather(at::Tensor output, at::Tensor input, int root) override {
    const bool is_root = rank() == root;
    const at::Tensor host = is_root ? host_like(output) : at::Tensor();
    return back(host_->gather(host, to_host(input), root), output, host, is_root);
  }
  Started all_gather(at::Tensor output, at::Tensor input) override {
    const at::Tensor host = host_like(output);
    return back(host_->all_gather(host, to_host(input)), output, host);
  }
  Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) override {
    const at::Tensor host = host_like(output);
    return back(host_->reduce_scatter(host, to_host(input), op), output, host);
  }
  Started accumulate(at::Tensor accumulator, at::Tensor input) override {
    const at::Tensor host = to_host(accumulator);
    return back(host_->accumulate(host, to_host(input)), accumulator, host);
  }
  Started accumulate_scatter(at::Tensor accumulator, at::Tensor input) override {
    const at::Tensor host = to_host(accumulator);
    return back(host_->accumulate_scatter(host, to_host(input)), accumulator, host);
  }
  Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                     std::vector<std::int64_t> input_splits) override {
    const at::Tensor host = host_like(output);
    return back(host_->all_to_all(host, to_host(input), std::move(output_splits), std::move(input_splits)), output,
                host);
  }
  Started send(at::Tensor tensor, int destination, int tag) override {
    const at::Tensor host = to_host(tensor);
    return back(host_->send(host, destination, tag), tensor, host, false);
  }
  Started recv(at::Tensor tensor, int source, int tag) override {
    const at::Tensor host = host_like(tensor);
    return back(host_->recv(host, source, tag), tensor, host);
  }
  Started barrier() override { return host_->barrier(); }

  void abort(const std::string& why) override { host_->abort(why); }
  void close() override { host_->close(); }

 private:
  // `copies`: wait() copies the result to the device.
  static Started back(Started inner, const at::Tensor& target, const at::Tensor& host, bool copies = true) {
    return std::make_shared<StagedPending>(std::move(inner), std::vector<at::Tensor>{target, host},
                                           [target, host, copies]() mutable {
                                             if (copies) target.copy_(host);
                                           });
  }

  std::shared_ptr<Backend> host_;
};

}  // namespace

std::shared_ptr<Backend> make_staged_backend(std::shared_ptr<Backend> host, c10::Device device) {
  TESSERA_CHECK(host && host->device().is_cpu(), "a staged group needs a transport for CPU tensors");
  return std::make_shared<StagedBackend>(std::move(host), device);
}

}  // namespace tessera::comm::hier
