#include <tessera/comm/alias.h>

#include <utility>

namespace tessera::comm {
namespace {

class Alias final : public Backend {
 public:
  Alias(std::shared_ptr<Backend> to, const std::string& name)
      : Backend(name, to->kind(), to->rank(), to->size(), to->device()), to_(std::move(to)) {}

  bool can_reduce(at::ScalarType dtype) const override { return to_->can_reduce(dtype); }
  void announce(const launch::Entry& entry) override { to_->announce(entry); }

  Started broadcast(at::Tensor tensor, int root) override { return to_->broadcast(std::move(tensor), root); }
  Started reduce(at::Tensor tensor, int root, Reduction op) override {
    return to_->reduce(std::move(tensor), root, op);
  }
  Started all_reduce(at::Tensor tensor, Reduction op) override { return to_->all_reduce(std::move(tensor), op); }
  Started scatter(at::Tensor output, at::Tensor input, int root) override {
    return to_->scatter(std::move(output), std::move(input), root);
  }
  Started gather(at::Tensor output, at::Tensor input, int root) override {
    return to_->gather(std::move(output), std::move(input), root);
  }
  Started all_gather(at::Tensor output, at::Tensor input) override {
    return to_->all_gather(std::move(output), std::move(input));
  }
  Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) override {
    return to_->reduce_scatter(std::move(output), std::move(input), op);
  }
  Started accumulate(at::Tensor accumulator, at::Tensor input) override {
    return to_->accumulate(std::move(accumulator), std::move(input));
  }
  Started accumulate_scatter(at::Tensor accumulator, at::Tensor input) override {
    return to_->accumulate_scatter(std::move(accumulator), std::move(input));
  }
  Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                     std::vector<std::int64_t> input_splits) override {
    return to_->all_to_all(std::move(output), std::move(input), std::move(output_splits), std::move(input_splits));
  }
  Started send(at::Tensor tensor, int destination, int tag) override {
    return to_->send(std::move(tensor), destination, tag);
  }
  Started recv(at::Tensor tensor, int source, int tag) override { return to_->recv(std::move(tensor), source, tag); }
  Started barrier() override { return to_->barrier(); }

  std::uint64_t extend_chain(std::uint64_t fingerprint) override {
    return Backend::extend_chain(fingerprint ^ to_->extend_chain(fingerprint));
  }

  void abort(const std::string& why) override { to_->abort(why); }
  void close() override {}

 private:
  std::shared_ptr<Backend> to_;
};

}  // namespace

std::shared_ptr<Backend> make_alias(std::shared_ptr<Backend> connections, const std::string& name) {
  return std::make_shared<Alias>(std::move(connections), name);
}

}  // namespace tessera::comm
