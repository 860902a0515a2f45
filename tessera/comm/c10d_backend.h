#pragma once
/// \file
/// A Backend over any c10d::Backend (Gloo, NCCL, or one that the caller already has).

#include <tessera/comm/backend.h>

namespace c10d {
class Backend;
}

namespace tessera::comm {

struct C10dOptions {
  std::string name;  ///< of the group
  std::string kind;  ///< "gloo", "nccl", ...
  c10::Device device = c10::kCPU;
  /// bf16/fp16 reductions are converted to fp32 first (Gloo accumulates in the tensor's type).
  bool reduce_half_as_float = true;
  std::shared_ptr<void> owner;  ///< kept alive as long as the backend
};

/// Data movement goes as bytes, so every dtype can be moved. Reductions: fp32, fp64, fp16, bf16, int8, uint8, int32,
/// int64.
std::shared_ptr<Backend> make_c10d_backend(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options);

}  // namespace tessera::comm
