#pragma once
/// \file
/// An optimizer of parameters on a device whose states and update are the host's (ZeRO-Offload, Ren et al. 2021).

#include <tessera/optim/optimizer.h>

#include <functional>
#include <memory>
#include <vector>

namespace tessera::optim {

/// Makes an optimizer of slots whose parameters are on the host.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Slot>)>;

/// A step copies every gradient to the host, waits for them once, updates there and copies the parameters back without
/// waiting. The host keeps a pinned copy of parameters and gradients (8 bytes per float32 parameter) besides what
/// `make`'s optimizer allocates; the copy is read again when somebody else has changed a parameter (its version
/// counter tells). `slots` are on one device, which is not the CPU.
std::unique_ptr<Optimizer> make_offloaded(std::vector<Slot> slots, const MakeOptimizer& make);

}  // namespace tessera::optim
