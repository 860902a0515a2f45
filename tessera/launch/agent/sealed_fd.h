#pragma once
/// \file
/// What the agent hands to its ranks by inherited file descriptors: memory that nobody can change any more, so that all
/// ranks, those of a restart too, read the same.

#include <tessera/launch/agent/unique_fd.h>

#include <string>
#include <string_view>

namespace tessera::launch {

/// A sealed memfd that holds `bytes`, close-on-exec: the agent clears that flag in the child and names the descriptor
/// in a variable. `name` is the kernel's, `what` the messages' ("the job's secret"). Throws Error.
UniqueFd sealed_fd(const char* name, std::string_view what, std::string_view bytes);

/// All that an inherited descriptor holds, by pread, so that a descriptor shared by several ranks serves them all; it
/// stays open. Throws InputError that names `variable`.
std::string text_from_fd(int fd, std::string_view variable);

}  // namespace tessera::launch
