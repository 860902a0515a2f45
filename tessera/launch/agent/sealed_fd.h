#pragma once
/// \file
/// Data that the agent passes to its ranks through inherited file descriptors. It is immutable, so all ranks, including
/// those of a restart, read the same.

#include <tessera/launch/agent/unique_fd.h>

#include <string>
#include <string_view>

namespace tessera::launch {

/// Returns a sealed memfd that contains `bytes`. It is close-on-exec: the agent clears that flag in the child and
/// passes the descriptor's number in a variable. `name`: the kernel's name for it; `what`: its name in messages ("the
/// job's secret"). Throws Error.
UniqueFd sealed_fd(const char* name, std::string_view what, std::string_view bytes);

/// Returns the whole contents of an inherited descriptor, read by pread, so that several ranks can share it; it stays
/// open. Throws InputError that names `variable`.
std::string text_from_fd(int fd, std::string_view variable);

}  // namespace tessera::launch
