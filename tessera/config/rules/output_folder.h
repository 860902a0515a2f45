#pragma once
/// \file
/// When --output_dir is empty enough for a run that was not told what to do with its contents.

#include <string>
#include <vector>

namespace tessera::config {

/// The entries beside which no run begins untold. Those that people, shells and file systems leave there do not count:
/// hidden ones (.gitkeep), lost+found, and logs (regular files that end with .log, .out, .err or .pid).
std::vector<std::string> entries_that_count(const std::string& folder);

/// Why a run cannot begin there, without the folder's name: "is not empty (1 entry): ..."; empty: it can.
std::string why_not_empty(const std::string& folder);

}  // namespace tessera::config
