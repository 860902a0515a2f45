#pragma once
/// \file
/// When --output_dir is empty enough for a run that was not told what to do with its contents.

#include <string>

namespace tessera::config {

/// Why a run cannot begin there, without the folder's name: "is not empty (1 entry): ..."; empty: it can. Entries that
/// people, shells and file systems leave there do not count: hidden files (.gitkeep), lost+found, and logs (regular
/// files that end with .log, .out, .err or .pid).
std::string why_not_empty(const std::string& folder);

}  // namespace tessera::config
