#pragma once
/// \file
/// NCCL on the double: a c10d::Backend named "nccl" whose collectives run on a stream of their own and move the bytes
/// of the mirrors through shared host memory. As with ProcessGroupNCCL, wait() orders the current stream after the
/// collective and does not block the host.
///
/// Environment: DOUBLE_SKIP_WAIT=n: the n-th wait() of the process orders nothing, as if the product had omitted it.
/// The data are still right, so only the clocks can detect it.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <tessera/comm/backend_plugin.h>

#include <memory>

namespace cuda_double {

c10::intrusive_ptr<c10d::Backend> make_nccl(const tessera::comm::BackendRequest& request);

}  // namespace cuda_double
