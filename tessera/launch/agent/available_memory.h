#pragma once
/// \file
/// Memory that this process may still take.

#include <cstdint>
#include <string>

namespace tessera::launch {

/// Bytes that processes of this host may still take: what the kernel has left (MemAvailable), and what the memory
/// control group of this process allows beyond what is used and cannot be reclaimed. The largest number when neither is
/// known. `root`: where /proc and /sys are looked for (tests).
std::int64_t available_bytes(const std::string& root = "");

}  // namespace tessera::launch
