#pragma once
/// \file
/// nn/device/: differences between host and devices. This header: moves tensors without blocking the host.

#include <ATen/core/Tensor.h>

#include <c10/core/Event.h>

#include <memory>

namespace tessera::nn {

/// `tensor` on `device`. From host to device it is copied through pinned memory, so the host does not wait for the
/// device's earlier work. An undefined tensor stays undefined; a tensor already on `device` is returned itself.
at::Tensor send(const at::Tensor& tensor, c10::Device device);

/// A number that a device computes and the host reads later: its copy to the host starts at once. A number on the host
/// needs no wait.
class LateNumber {
 public:
  /// `scalar`: a tensor of one element.
  explicit LateNumber(const at::Tensor& scalar);

  /// Waits for the copy if it is not complete.
  double value() const;
  bool ready() const;  ///< whether value() returns without waiting

 private:
  at::Tensor number_;                   // on the host
  std::shared_ptr<c10::Event> copied_;  // null: the number was already on the host
};

}  // namespace tessera::nn
