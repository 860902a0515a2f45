#pragma once
/// \file
/// The files of a source tree as the rules of this folder read them.

#include <string>
#include <vector>

namespace tessera::structure {

/// The sources and scripts of the tree under `root` (C++, CUDA, Python, shell, CMake), sorted; paths from `root`.
/// Throws std::runtime_error when there are none.
std::vector<std::string> sources(const std::string& root);

/// The lines of root/path.
std::vector<std::string> lines_of(const std::string& root, const std::string& path);

/// The comment of a line of the file `path` without its marker, "" when there is none: what follows // (C++) or #
/// (scripts) outside of a string.
std::string comment_of(const std::string& path, const std::string& line);

/// "path:line: ", where `index` counts from 0.
std::string at(const std::string& path, std::size_t index);

}  // namespace tessera::structure
