#pragma once
/// \file
/// Random numbers of the double's devices: generators whose state is a seed and an offset, as in CUDA. The numbers are
/// those of a CPU generator seeded from that state, so they repeat with the state and differ from the CPU's.

#include <ATen/core/Generator.h>

namespace cuda_double {

/// The default generator of `device`; -1: of the current device.
const at::Generator& default_generator(int device);

at::Generator new_generator(int device);

/// Returns a seed for one operator and advances the generator's offset.
std::uint64_t take_seed(at::Generator generator);

}  // namespace cuda_double
