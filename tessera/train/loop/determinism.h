#pragma once
/// \file
/// --full_determinism: transformers' enable_full_determinism plus the fixed order of reduction.

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

/// With full_determinism: turns on LibTorch's deterministic algorithms in this process (an operation without one
/// throws), and sets deterministic_reduce unless another setting excludes it (several threads per process, gradients
/// that are compressed or reduced in a narrow type, auto_find_batch_size, ep_size combined with tp, cp or pp).
/// Otherwise returns the configuration unchanged.
RunConfig with_full_determinism(RunConfig config);

}  // namespace tessera::train
