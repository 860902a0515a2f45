#pragma once
/// \file
/// What a compiler says of a program, loaded on devices or only compiled.

#include <tessera/xla/pjrt/plugin.h>

#include <cstdint>
#include <string>

struct PJRT_Executable;

namespace tessera::xla {

/// Bytes on each device.
struct ProgramMemory {
  std::int64_t arguments = 0, results = 0;
  std::int64_t shared = 0;     ///< results that take the memory of donated arguments
  std::int64_t temporary = 0;  ///< while it runs
};

// Throw Error where the plug-in does not tell.
ProgramMemory memory_of(const Plugin& plugin, PJRT_Executable* executable);
/// The optimized program: an HLO module in the form that the plug-in has.
std::string optimized_of(const Plugin& plugin, PJRT_Executable* executable);
void destroy(const Plugin& plugin, PJRT_Executable* executable);

}  // namespace tessera::xla
