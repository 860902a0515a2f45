// Locations of the source tree and the build folder. The paths are in one generated file (tests/CMakeLists.txt)
// instead of macros of every unit, so that the compiler cache also works for a clone in a different folder.
#pragma once

#include <string>
#include <string_view>

namespace tessera::testing {

// The absolute path of a file in the source tree ("tests/fixtures/gpt2_tiny"), or of the tree itself.
std::string source_path(std::string_view below = "");

// The same in the build folder ("tessera", "examples/ddp_simple").
std::string build_path(std::string_view below = "");

}  // namespace tessera::testing
