#pragma once
/// \file
/// The processor's name, for display.

#include <string>

namespace tessera {

/// "Intel(R) Xeon(R) Platinum 8481C": the first model name in /proc/cpuinfo; the architecture if the kernel reports no
/// name (64-bit ARM); "unknown" if it reports neither.
std::string processor_name();

}  // namespace tessera
