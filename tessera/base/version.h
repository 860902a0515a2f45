#pragma once
/// \file
/// The version of the library, as https://semver.org counts: before 1.0 the second number changes whenever a public
/// name does (docs/install.md has the rule). CMake reads these lines and every digit in them: the one place.

namespace tessera {

inline constexpr int version_major = 0;  ///< once it is not zero, grows whenever a public name changes
inline constexpr int version_minor = 1;  ///< until then grows in its place
inline constexpr int version_patch = 0;  ///< grows when all public names stay

}  // namespace tessera
