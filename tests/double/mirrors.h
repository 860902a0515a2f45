#pragma once
/// \file
/// CPU tensors on the mirrors of device tensors, for the CPU's kernels, and the conversion of their results back.

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>
#include <vector>

#include <tests/double/order.h>

namespace cuda_double {

inline constexpr c10::DispatchKeySet cuda_keys{c10::DispatchKey::CUDA};

/// Disables autograd and autocast on the mirrors: both have already run above the device's kernels.
struct BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard autograd{c10::autograd_dispatch_keyset_with_ADInplaceOrView};
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

/// A non-owning CPU tensor on the mirror of a device tensor's memory.
at::Tensor host_view(const at::Tensor& tensor);

/// Appends the tensor's elements to `out`, as runs of adjacent bytes. More than 1,024 runs become one that spans all.
void add_accesses(const at::Tensor& tensor, bool write, std::vector<Access>& out);

/// The mirrors of one operator's arguments: one CPU tensor per device tensor, one CPU storage per device storage, so
/// that aliases remain aliases.
class Mirrors {
 public:
  at::Tensor of(const at::Tensor& tensor);

  /// Returns the device tensor of a result: an argument itself, a view of an argument, or a copy in new memory of the
  /// current device.
  at::Tensor back(const at::Tensor& result);

  /// Gives arguments that the kernel resized (out=) the same shape and memory on the device.
  void follow_resizes();

  /// Results in new memory.
  const std::vector<at::Tensor>& made() const { return made_; }

 private:
  c10::Storage storage_of(const c10::Storage& storage);

  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;       // device, mirror
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;  // device, mirror
  std::vector<at::Tensor> made_;
};

}  // namespace cuda_double
