#pragma once
/// \file
/// Rules of the text of the tree that no compiler checks: the width of lines, the size of files and folders, comments.

#include <string>
#include <vector>

namespace tessera::structure {

/// "path:line: N columns" for each line of a source or script that is wider than 120 columns (code points). Rows of a
/// Markdown table inside a script cannot be broken and may be wider.
std::vector<std::string> wide_lines(const std::string& root);

/// "path:601: ..." for each source or script over 600 lines whose opening comment gives no reason that begins with
/// "Long because:".
std::vector<std::string> long_files(const std::string& root);

/// "folder: N files" for each folder under tessera/, tools/ and tests/ that holds more than 50 source files itself.
std::vector<std::string> crowded_folders(const std::string& root);

/// "folder: ..." for each folder with headers below a folder of tessera/ of which no header's first comment says what
/// it is for, in a line "/// launch/store/: ...".
std::vector<std::string> unexplained_folders(const std::string& root);

/// "path:line: ..." for each comment that begins with "of": what it speaks of is left to be guessed.
std::vector<std::string> headless_comments(const std::string& root);

/// What is wrong with the walks of CONTRIBUTING.md: sections "### Walk: NAME" of numbered steps, each of which begins
/// with the file in backquotes where it happens. There are six, with at most five files each.
std::vector<std::string> wrong_walks(const std::string& root);

}  // namespace tessera::structure
