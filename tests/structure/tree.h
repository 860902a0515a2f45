#pragma once
/// \file
/// The files of a source tree, as read by the rules in this folder.

#include <string>
#include <vector>

namespace tessera::structure {

/// Returns the sources and scripts of the tree under `root` (C++, CUDA, Python, shell, CMake), sorted, as paths from
/// `root`. Throws std::runtime_error if it finds none.
std::vector<std::string> sources(const std::string& root);

/// The lines of root/path.
std::vector<std::string> lines_of(const std::string& root, const std::string& path);

/// Returns the comment in a line of the file `path` without its marker, or "": the text after // (C++) or # (scripts)
/// outside of strings.
std::string comment_of(const std::string& path, const std::string& line);

/// Returns "path:line: ", where `index` counts from 0.
std::string at(const std::string& path, std::size_t index);

}  // namespace tessera::structure
