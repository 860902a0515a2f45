#pragma once
/// \file
/// Keeps replicas equal: the same parameters in the same order on every rank, rank 0's values everywhere, and checks of
/// both. All functions are collective over the group: every rank calls them in the same order.

#include <ATen/core/Tensor.h>

#include <tessera/base/error.h>
#include <tessera/comm/group.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::parallel {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Throws Error, the same on every rank, when two ranks' lists differ in length, order, names, shapes, strides, dtypes
/// or requires_grad. The message names the first difference and the rank. `what`: "parameter", "buffer".
void require_same_structure(const comm::Group& group, const std::vector<NamedTensor>& tensors, const std::string& what);

/// Overwrites every tensor with `root`'s, bit for bit, for any dtype; sent in pieces of about 25 MiB rather than one by
/// one. Tensors are on group.device() and may be views of any layout. Autograd does not see the writes, but version
/// counters do.
void broadcast_tensors(const comm::Group& group, const std::vector<at::Tensor>& tensors, int root = 0);

/// Thrown by require_same_bits().
class ReplicasDiffer : public Error {
 public:
  using Error::Error;
};

/// Throws ReplicasDiffer, the same on every rank, that names the first tensor whose bits differ, and ranks by their
/// numbers in the job: the ranks that differ from the majority or, without a majority, all parties (replicas_differ.h).
/// Exchanges only 8 bytes per rank while all replicas are equal. `what` as above.
void require_same_bits(const comm::Group& group, const std::vector<NamedTensor>& tensors, const std::string& what);

}  // namespace tessera::parallel
