#pragma once
/// \file
/// The version of the library, by https://semver.org: before 1.0 the minor version changes whenever a public name does
/// (docs/install.md has the rule). CMake parses these lines, so this is the only place to change.

namespace tessera {

inline constexpr int version_major = 0;  ///< from 1 on, incremented whenever a public name changes
inline constexpr int version_minor = 1;  ///< before 1.0, incremented in place of the major version
inline constexpr int version_patch = 0;  ///< incremented when all public names stay

}  // namespace tessera
