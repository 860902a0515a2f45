#pragma once
/// \file
/// A group whose tensors are on a device and whose transport works on CPU tensors: each operation copies its inputs to
/// host memory, and its results back when it is waited for. For several ranks on one GPU, which NCCL refuses.

#include <tessera/comm/backend.h>

#include <memory>

namespace tessera::comm::hier {

/// Takes the place of `host` (CPU) for tensors on `device`. kind() is "staged/" + the host's. Copies are ordered on the
/// current stream and block this thread: correct and simple, not fast.
std::shared_ptr<Backend> make_staged_backend(std::shared_ptr<Backend> host, c10::Device device);

}  // namespace tessera::comm::hier
