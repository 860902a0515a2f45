#pragma once
/// \file
/// isa/: the vector type (simd_*.h) and the table of loops (table_*.cpp) of each instruction set. This header: the sets
/// of one processor architecture. Either architecture_x86.cpp or architecture_arm64.cpp is built.

#include <tessera/kernels/cpu/dispatch.h>

namespace tessera::kernels {

struct IsaChoice {
  Isa isa;
  bool (*supported)();
  const Table* table;
};
/// The sets compiled for this architecture, slowest first; `baseline` is the first, and always supported.
std::span<const IsaChoice> isa_choices();

}  // namespace tessera::kernels
