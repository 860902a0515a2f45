#pragma once
/// \file
/// Rules of the text of the tree that no compiler checks: the width of lines and the size of folders.

#include <string>
#include <vector>

namespace tessera::structure {

/// "path:line: N columns" for each line of a source or script that is wider than 120 columns (code points). Rows of a
/// Markdown table inside a script cannot be broken and may be wider.
std::vector<std::string> wide_lines(const std::string& root);

/// "folder: N files" for each folder under tessera/, tools/ and tests/ that holds more than 50 source files itself.
std::vector<std::string> crowded_folders(const std::string& root);

}  // namespace tessera::structure
