#pragma once
/// \file
/// A group for device tensors over a transport for CPU tensors: each operation copies its inputs to host memory, and
/// wait() copies the results back. For several ranks on one GPU, which NCCL refuses.

#include <tessera/comm/backend.h>

#include <memory>

namespace tessera::comm::hier {

/// Wraps `host` (CPU) for tensors on `device`. kind() is "staged/" + the host's kind. Copies are ordered on the current
/// stream and block this thread: correct and simple, but not fast.
std::shared_ptr<Backend> make_staged_backend(std::shared_ptr<Backend> host, c10::Device device);

}  // namespace tessera::comm::hier
