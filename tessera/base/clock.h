#pragma once
/// \file
/// The clock for measuring durations. Thread-safe.

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace tessera {

/// Nanoseconds of CLOCK_MONOTONIC (man 2 clock_gettime), counted from an arbitrary point in the past and never set
/// back. All processes of a host read the same clock, so their readings are comparable; readings of different hosts are
/// not.
std::int64_t monotonic_ns();

/// Seconds elapsed since monotonic_ns() returned `begin_ns`.
double seconds_since(std::int64_t begin_ns);

/// Seconds since the kernel started the process; nullopt if it does not exist or /proc is not mounted.
std::optional<double> seconds_since_start(pid_t pid);

}  // namespace tessera
