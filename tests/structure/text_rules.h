#pragma once
/// \file
/// Text rules that no compiler checks: the width of lines, the size of files and folders, comments.

#include <string>
#include <vector>

namespace tessera::structure {

/// Returns "path:line: N columns" for each line of a source or script wider than 120 columns (code points). Rows of a
/// Markdown table inside a script cannot be broken and may be wider.
std::vector<std::string> wide_lines(const std::string& root);

/// Returns "path:601: ..." for each source or script over 600 lines whose opening comment gives no reason that begins
/// with "Long because:".
std::vector<std::string> long_files(const std::string& root);

/// Returns "folder: N files" for each folder under tessera/, tools/ and tests/ that directly contains more than 50
/// source files.
std::vector<std::string> crowded_folders(const std::string& root);

/// Returns "folder: ..." for each folder below a folder of tessera/ that has headers, but none whose first comment
/// states its purpose in a line "/// launch/store/: ...".
std::vector<std::string> unexplained_folders(const std::string& root);

/// Returns "path:line: ..." for each comment that begins with "of", because such a comment lacks its subject.
std::vector<std::string> headless_comments(const std::string& root);

/// Returns "path:line: ..." for each istreambuf_iterator in tessera/ and tools/: unlike getline(), it throws out of the
/// function when read() fails, as it does for a file of /proc whose process has just ended.
std::vector<std::string> throwing_readers(const std::string& root);

/// Checks the walks in CONTRIBUTING.md: there must be six sections "### Walk: NAME" of numbered steps, each beginning
/// with its file in backquotes, and at most five files per section. Returns the problems.
std::vector<std::string> wrong_walks(const std::string& root);

}  // namespace tessera::structure
