#pragma once
/// \file
/// The compiler's report on a program's memory.

#include <cstdint>

namespace tessera::xla {

/// Bytes on each device.
struct ProgramMemory {
  std::int64_t arguments = 0, results = 0;  ///< bytes in one run
  std::int64_t shared = 0;                  ///< results in the memory of donated arguments
  std::int64_t temporary = 0;               ///< temporaries while the program runs
};

}  // namespace tessera::xla
