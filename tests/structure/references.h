#pragma once
/// \file
/// Checks that everything that documents and comments name exists: paths, files, test programs, make targets, links.

#include <string>
#include <vector>

namespace tessera::structure {

/// Returns one line per stale reference in the tree's Markdown files and in the comments of its sources, e.g.
/// "docs/sharding.md:7: tessera/parallel/old.h is not there". It checks
///  - paths from the root (tessera/..., tests/..., docs/..., ...), with or without an extension; and FOLDER/file.h,
///  which must be the end of a path in the tree;
///  - file.h, file.cpp, file.cu alone: some file of the tree has this name;
///  - NAME_tests: the folder tests/NAME;
///  - `make TARGET`: the Makefile has it;
///  - links in Markdown files to files.
/// Words with placeholders (capitals only, *, {}, <>, $) and headers of other projects are not references.
std::vector<std::string> stale_references(const std::string& root);

}  // namespace tessera::structure
