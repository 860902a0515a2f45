#pragma once
/// \file
/// An optimizer for parameters on a device that keeps the states, and computes the update, on the host (ZeRO-Offload,
/// Ren et al. 2021).

#include <tessera/optim/optimizer.h>

#include <functional>
#include <memory>
#include <vector>

namespace tessera::optim {

/// Creates an optimizer for slots whose parameters are on the host.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Slot>)>;

/// A step copies every gradient to the host, waits once for all copies, updates there, and copies the parameters back
/// without waiting. The host keeps a pinned copy of parameters and gradients (8 bytes per float32 parameter) in
/// addition to the memory of `make`'s optimizer; the copy is refreshed if other code has changed a parameter (detected
/// by its version counter). All `slots` are on one device other than the CPU.
std::unique_ptr<Optimizer> make_offloaded(std::vector<Slot> slots, const MakeOptimizer& make);

}  // namespace tessera::optim
