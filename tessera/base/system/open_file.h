#pragma once
/// \file
/// What becomes of a path while its file or folder is open: others move it, remove it, or put another one there.

#include <string>

namespace tessera {

/// Whether the path leads to what is open at `fd`; a link at its end is followed.
bool leads_to(const std::string& path, int fd);

}  // namespace tessera
