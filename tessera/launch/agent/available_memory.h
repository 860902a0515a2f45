#pragma once
/// \file
/// Memory that is still available to this process.

#include <cstdint>
#include <string>

namespace tessera::launch {

/// Bytes that processes of this host may still allocate: the minimum of what the kernel has available (MemAvailable)
/// and what the memory cgroup of this process leaves beyond its use that cannot be reclaimed. The largest number when
/// neither is known. `root`: where /proc and /sys are looked for (tests).
std::int64_t available_bytes(const std::string& root = "");

}  // namespace tessera::launch
