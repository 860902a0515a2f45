#pragma once
/// \file
/// A Backend over a transport on raw memory (wire/): translates tensors to operations. CPU tensors.

#include <tessera/comm/backend.h>
#include <tessera/wire/operation.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::comm {

class WiredBackend : public Backend {
 public:
  using Backend::Backend;

  bool can_reduce(at::ScalarType dtype) const override;
  void announce(const launch::Entry& entry) override { announced_ = entry; }

  Started broadcast(at::Tensor tensor, int root) override;
  Started reduce(at::Tensor tensor, int root, Reduction op) override;
  Started all_reduce(at::Tensor tensor, Reduction op) override;
  Started scatter(at::Tensor output, at::Tensor input, int root) override;
  Started gather(at::Tensor output, at::Tensor input, int root) override;
  Started all_gather(at::Tensor output, at::Tensor input) override;
  Started reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) override;
  Started all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                     std::vector<std::int64_t> input_splits) override;
  Started send(at::Tensor tensor, int destination, int tag) override;
  Started recv(at::Tensor tensor, int source, int tag) override;
  Started barrier() override;

 protected:
  /// Starts a collective.
  virtual Started begin(wire::Operation operation) = 0;
  /// Starts a send or recv.
  virtual Started post(wire::Operation operation) = 0;

  /// `part`: the smaller tensor, of n elements.
  wire::Operation make(launch::Op op, const at::Tensor& output, const at::Tensor& input, const at::Tensor& part,
                       int root, const char* reduction = "");

 private:
  launch::Entry take_entry(launch::Op op, const at::Tensor& part, int root, const char* reduction);
  Started reduction(launch::Op op, const at::Tensor& output, const at::Tensor& input, const at::Tensor& part, int root,
                    Reduction how);
  Started message(launch::Op op, const at::Tensor& tensor, int peer, int tag);

  std::optional<launch::Entry> announced_;
  std::uint64_t own_messages_ = 0, own_collectives_ = 0;
};

}  // namespace tessera::comm
