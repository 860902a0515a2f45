#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <tessera/comm/c10d/c10d_wait.h>
#include <tessera/comm/c10d/ring_link.h>

namespace tessera::comm::ring {
namespace {

class C10dMessage final : public Link::Message {
 public:
  C10dMessage(c10::intrusive_ptr<c10d::Work> work, MessageWaiter& waiter) : work_(std::move(work)), waiter_(waiter) {}
  void wait() override { waiter_.wait(work_); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  MessageWaiter& waiter_;
};

std::vector<at::Tensor> as_bytes(const void* data, std::size_t bytes) {
  return {at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)}, at::kByte)};
}

}  // namespace

std::unique_ptr<Link::Message> C10dLink::send(int peer, const void* data, std::size_t bytes) {
  std::vector<at::Tensor> tensors = as_bytes(data, bytes);
  return std::make_unique<C10dMessage>(backend_.send(tensors, peer, tag_), waiter_);
}

std::unique_ptr<Link::Message> C10dLink::recv(int peer, void* data, std::size_t bytes) {
  std::vector<at::Tensor> tensors = as_bytes(data, bytes);
  return std::make_unique<C10dMessage>(backend_.recv(tensors, peer, tag_), waiter_);
}

}  // namespace tessera::comm::ring
