#pragma once
/// \file
/// The clock that durations are taken with. Thread-safe.

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace tessera {

/// Nanoseconds of CLOCK_MONOTONIC (man 2 clock_gettime): since some point in the past, never set back, and the same in
/// every process of a host, so that processes may compare their readings; those of two hosts have nothing to do with
/// each other.
std::int64_t monotonic_ns();

/// Seconds that have passed since monotonic_ns() was `begin_ns`.
double seconds_since(std::int64_t begin_ns);

/// Seconds since the kernel started the process; nullopt when there is none, or /proc is not mounted.
std::optional<double> seconds_since_start(pid_t pid);

}  // namespace tessera
