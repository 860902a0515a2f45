#pragma once
/// \file
/// nn/device/: what differs between host and devices. This header: moving tensors without making the host wait.

#include <ATen/core/Tensor.h>

#include <c10/core/Event.h>

#include <memory>

namespace tessera::nn {

/// `tensor` on `device`. From the host to a device it goes through pinned memory, so the host does not wait for what
/// the device was given before. Undefined stays undefined; on `device` already: the tensor itself.
at::Tensor send(const at::Tensor& tensor, c10::Device device);

/// A number that a device computes and the host reads later: its copy to the host is under way at once. For a number of
/// the host there is nothing to wait for.
class LateNumber {
 public:
  /// `scalar`: a tensor of one element.
  explicit LateNumber(const at::Tensor& scalar);

  /// Waits for the copy if it is not over.
  double value() const;
  bool ready() const;  ///< value() would not wait

 private:
  at::Tensor number_;                   // on the host
  std::shared_ptr<c10::Event> copied_;  // null: the number was the host's
};

}  // namespace tessera::nn
