#pragma once
/// \file
/// --full_determinism: transformers' enable_full_determinism, and the fixed order of reduction beside it.

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

/// With full_determinism: turns on LibTorch's deterministic algorithms in this process (an operation without one
/// throws), and asks for deterministic_reduce where nothing else that was asked for excludes it (several threads per
/// process, gradients that are compressed or reduced in a narrow type, auto_find_batch_size, ep_size beside tp, cp or
/// pp). Else returns the configuration as it is.
RunConfig with_full_determinism(RunConfig config);

}  // namespace tessera::train
