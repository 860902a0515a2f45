#pragma once
/// \file
/// The version of the library, as https://semver.org counts: before 1.0 the second number changes whenever a public
/// name does (docs/install.md has the rule). CMake reads these lines: this is the one place.

namespace tessera {

inline constexpr int version_major = 0;  ///< before 1.0: 0
inline constexpr int version_minor = 1;  ///< changes with every public name, until 1.0
inline constexpr int version_patch = 0;  ///< changes when no public name does

}  // namespace tessera
