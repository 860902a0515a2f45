#pragma once
/// \file
/// c10d/: adapters to LibTorch's interfaces in both directions: its backends as ours, our store as its. This header: a
/// Backend over any c10d::Backend (Gloo, NCCL, or the caller's own).

#include <tessera/comm/backend.h>
#include <tessera/wire/ring/choice.h>

#include <optional>

namespace c10d {
class Backend;
}

namespace tessera::comm {

namespace ring {
using namespace wire::ring;
}

struct C10dOptions {
  std::string name;  ///< the group's name, for messages
  std::string kind;  ///< "gloo", "nccl", ...
  c10::Device device = c10::kCPU;
  /// all_reduce, reduce_scatter and all_gather run over send and recv where that is faster (ring/choice.h). CPU only;
  /// must be equal on all ranks. Callers may then use only tags below ring::first_own_tag.
  bool own_collectives = false;
  std::optional<ring::Choice> choice = {};  ///< force this algorithm (tests and benchmarks)
  std::shared_ptr<void> owner;              ///< kept alive until the backend is destroyed
};

/// Data is moved as bytes, so every dtype can be moved. Reductions: fp32, fp64, fp16, bf16, int8, uint8, int32, int64.
std::shared_ptr<Backend> make_c10d_backend(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options);

}  // namespace tessera::comm
