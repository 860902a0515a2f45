// A group of one rank: every collective is a copy or does nothing.
#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/comm/backend.h>

namespace tessera::comm {
namespace {

class LocalBackend final : public Backend {
 public:
  LocalBackend(const std::string& name, c10::Device device)
      : Backend(name, std::string(layout::Local::row.name), 0, 1, device) {}

  bool can_reduce(at::ScalarType dtype) const override { return dtype != at::kBool && !at::isComplexType(dtype); }

  Started broadcast(at::Tensor, int) override { return nullptr; }
  Started reduce(at::Tensor, int, Reduction) override { return nullptr; }
  Started all_reduce(at::Tensor, Reduction) override { return nullptr; }
  Started scatter(at::Tensor output, at::Tensor input, int) override { return copy(output, input); }
  Started gather(at::Tensor output, at::Tensor input, int) override { return copy(output, input); }
  Started all_gather(at::Tensor output, at::Tensor input) override { return copy(output, input); }
  Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction) override { return copy(output, input); }
  Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t>,
                     std::vector<std::int64_t>) override {
    return copy(output, input);
  }
  Started send(at::Tensor, int, int) override { throw Error("a group of one rank has no peer"); }
  Started recv(at::Tensor, int, int) override { throw Error("a group of one rank has no peer"); }
  Started barrier() override { return nullptr; }
  void close() override {}

 private:
  // Shapes may differ ([1 * n] and [n]), but numbers of elements do not.
  static Started copy(at::Tensor& output, const at::Tensor& input) {
    if (output.data_ptr() != input.data_ptr()) output.view(-1).copy_(input.view(-1));
    return nullptr;
  }
};

}  // namespace

std::shared_ptr<Backend> make_local_backend(const std::string& name, c10::Device device) {
  return std::make_shared<LocalBackend>(name, device);
}

}  // namespace tessera::comm

std::shared_ptr<tessera::comm::Backend> tessera::layout::Local::make(const comm::BackendRequest& request) {
  return comm::make_local_backend(request.name, request.device);
}
