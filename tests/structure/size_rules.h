#pragma once
/// \file
/// Size limits for the parts of a run: its loop, its stages and its features under tessera/train.

#include <string>
#include <vector>

namespace tessera::structure {

/// Returns "path:line: ..." for each function of more than 60 lines under tessera/train. Functions are found by
/// clang-format's indentation: a line with only "}" closes the last preceding line of the same indentation or less.
std::vector<std::string> long_functions(const std::string& root);

/// Returns "path:line: ..." for each class (not struct: structs are records) of more than 20 data members under
/// tessera/train. Members are the names that end with an underscore.
std::vector<std::string> large_classes(const std::string& root);

}  // namespace tessera::structure
