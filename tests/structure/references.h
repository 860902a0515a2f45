#pragma once
/// \file
/// What documents and comments name is there: paths, files, programs of tests, targets of make, links.

#include <string>
#include <vector>

namespace tessera::structure {

/// One line per stale reference in the tree's Markdown files and in comments of its sources, e.g.
/// "docs/sharding.md:7: tessera/parallel/old.h is not there". Checked are
///  - paths from the root (tessera/..., tests/..., docs/..., ...), with or without an extension; and FOLDER/file.h,
///    which must be the end of a path of the tree;
///  - file.h, file.cpp, file.cu alone: some file of the tree has the name;
///  - NAME_tests: the folder tests/NAME;
///  - `make TARGET`: the Makefile has it;
///  - links of Markdown files to files.
/// Words with placeholders (capitals only, *, {}, <>, $) and headers of other projects are no references.
std::vector<std::string> stale_references(const std::string& root);

}  // namespace tessera::structure
