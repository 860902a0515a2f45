#pragma once
/// \file
/// Operations as a file that chrome://tracing and Perfetto open.

#include <tessera/wire/group.h>

#include <string>

namespace tessera::wire {

/// Writes every operation that ends from now on: one process per rank, one row per group, times in microseconds of
/// CLOCK_MONOTONIC. The file is whole after stop_timeline(); Chrome also reads one that breaks off. Throws Failure
/// (system) when it cannot be written. A timeline that is being written ends first.
void start_timeline(Journal& journal, const std::string& path, int rank);
void stop_timeline(Journal& journal);

}  // namespace tessera::wire
