#pragma once
/// \file
/// Queries of a compiled program, loaded on devices or not.

#include <tessera/xla/pjrt/plugin.h>
#include <tessera/xla/pjrt/program_memory.h>

#include <string>

struct PJRT_Executable;

namespace tessera::xla {

// These throw Error if the plug-in does not report the value.
ProgramMemory memory_of(const Plugin& plugin, PJRT_Executable* executable);
/// The optimized program: an HLO module in the plug-in's form.
std::string optimized_of(const Plugin& plugin, PJRT_Executable* executable);
/// The program in the plug-in's own form, which the same plug-in can load. Throws if it has none.
std::string serialized(const Plugin& plugin, PJRT_Executable* executable);
void destroy(const Plugin& plugin, PJRT_Executable* executable);

}  // namespace tessera::xla
