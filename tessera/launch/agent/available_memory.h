#pragma once
/// \file
/// Measures the memory that is still available to this process.

#include <cstdint>
#include <string>

namespace tessera::launch {

/// Bytes that processes of this host may still allocate: the minimum of the kernel's MemAvailable and the memory
/// cgroup's limit minus its unreclaimable use. The largest number when neither is known. `root`: the parent folder of
/// /proc and /sys (for tests).
std::int64_t available_bytes(const std::string& root = "");

}  // namespace tessera::launch
