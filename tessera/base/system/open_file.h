#pragma once
/// \file
/// Detects that the path of an open file or folder was moved, removed or replaced by another process.

#include <string>

namespace tessera {

/// Whether the path refers to the file open at `fd`; follows a symbolic link in the last component.
bool leads_to(const std::string& path, int fd);

}  // namespace tessera
