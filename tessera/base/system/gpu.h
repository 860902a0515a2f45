#pragma once
/// \file
/// Whether this machine may have a GPU, without asking the driver.

namespace tessera {

/// Whether an NVIDIA driver has created its control device: Linux's /dev/nvidiactl, or WSL's /dev/dxg.
bool has_gpu_driver();

}  // namespace tessera
