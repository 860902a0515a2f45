#pragma once
/// \file
/// Whether a step is being captured as operators (xla/capture): kernels that are no operators of LibTorch step aside, so
/// that every computation is seen.

namespace tessera::nn {

/// Of the calling thread; set while capture() runs, on the thread that runs forward and backward.
inline thread_local bool capturing = false;

}  // namespace tessera::nn
