#pragma once
/// \file
/// What a compiler says of a program, loaded on devices or only compiled.

#include <tessera/xla/pjrt/plugin.h>
#include <tessera/xla/pjrt/program_memory.h>

#include <string>

struct PJRT_Executable;

namespace tessera::xla {

// Throw Error where the plug-in does not tell.
ProgramMemory memory_of(const Plugin& plugin, PJRT_Executable* executable);
/// The optimized program: an HLO module in the form that the plug-in has.
std::string optimized_of(const Plugin& plugin, PJRT_Executable* executable);
/// The program in the plug-in's own form, which the same plug-in loads again. Throws where it has none.
std::string serialized(const Plugin& plugin, PJRT_Executable* executable);
void destroy(const Plugin& plugin, PJRT_Executable* executable);

}  // namespace tessera::xla
