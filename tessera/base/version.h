#pragma once
/// \file
/// The version of the library, as https://semver.org counts: before 1.0 the second number changes whenever a public
/// name does (docs/install.md has the rule). CMake reads these lines: this is the one place.

namespace tessera {

inline constexpr int version_major = 0;  ///< no digits in these comments: CMake takes all of the line
inline constexpr int version_minor = 1;  ///< grows whenever a public name does not stay as it was
inline constexpr int version_patch = 0;  ///< grows when all public names stay

}  // namespace tessera
