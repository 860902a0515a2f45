#pragma once
/// \file
/// Whether --output_dir is empty enough for a run without instructions for existing files.

#include <string>

namespace tessera::config {

/// The reason why a run cannot start in `folder`, without the folder's name: "is not empty (1 entry): ..."; empty: it
/// can. Entries that users, shells and file systems commonly create are ignored: hidden files (.gitkeep), lost+found,
/// and logs (regular files ending in .log, .out, .err or .pid).
std::string why_not_empty(const std::string& folder);

}  // namespace tessera::config
