#pragma once
/// \file
/// How large the parts of a run may be: its loop, its stages and its features under tessera/train.

#include <string>
#include <vector>

namespace tessera::structure {

/// "path:line: ..." for each function of more than 60 lines under tessera/train. Found by the indentation that
/// clang-format gives: a line of nothing but "}" ends what the last line above with as little indentation begins.
std::vector<std::string> long_functions(const std::string& root);

/// "path:line: ..." for each class (not struct: those are records) of more than 20 data members under tessera/train.
/// Members are the names that end with an underscore.
std::vector<std::string> large_classes(const std::string& root);

}  // namespace tessera::structure
