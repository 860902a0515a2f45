#pragma once
/// \file
/// The version of Tessera; the same number stands in CMakeLists.txt (project) and a test compares the two.

namespace tessera {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace tessera
