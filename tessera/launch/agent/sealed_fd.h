#pragma once
/// \file
/// Data that the agent passes to its ranks by inherited file descriptors: immutable memory, so that all ranks, also
/// those of a restart, read the same.

#include <tessera/launch/agent/unique_fd.h>

#include <string>
#include <string_view>

namespace tessera::launch {

/// A sealed memfd that contains `bytes`, close-on-exec: the agent clears that flag in the child and passes the
/// descriptor's number in a variable. `name` is the kernel's name for it, `what` the one in messages ("the job's
/// secret"). Throws Error.
UniqueFd sealed_fd(const char* name, std::string_view what, std::string_view bytes);

/// Returns the whole contents of an inherited descriptor, read by pread, so that several ranks can share it; it stays
/// open. Throws InputError that names `variable`.
std::string text_from_fd(int fd, std::string_view variable);

}  // namespace tessera::launch
