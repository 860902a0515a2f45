#pragma once
/// \file
/// What processor this is, for people.

#include <string>

namespace tessera {

/// "Intel(R) Xeon(R) Platinum 8481C": the first one of /proc/cpuinfo; its architecture where the kernel tells no name
/// (64-bit ARM), "unknown" where it tells neither.
std::string processor_name();

}  // namespace tessera
