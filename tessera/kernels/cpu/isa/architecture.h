#pragma once
/// \file
/// isa/: the vector type (simd_*.h) and the table of loops (table_*.cpp) of each instruction set. This header: which of
/// them one processor architecture has. architecture_x86.cpp or architecture_arm64.cpp is built.

#include <tessera/kernels/cpu/dispatch.h>

namespace tessera::kernels {

struct IsaChoice {
  Isa isa;
  bool (*supported)();
  const Table* table;
};
/// Those that are compiled for this architecture, the slowest first; `baseline` is the first, and always supported.
std::span<const IsaChoice> isa_choices();

}  // namespace tessera::kernels
