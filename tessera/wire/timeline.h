#pragma once
/// \file
/// Writes operations to a file for chrome://tracing and Perfetto.

#include <tessera/wire/group.h>

#include <string>

namespace tessera::wire {

/// Writes every operation that ends after this call: one process per rank, one row per group, times in microseconds of
/// CLOCK_MONOTONIC. The file is complete after stop_timeline(); Chrome also reads truncated ones. Throws Failure
/// (system) if it cannot be written. Ends a running timeline first.
void start_timeline(Journal& journal, const std::string& path, int rank);
void stop_timeline(Journal& journal);

}  // namespace tessera::wire
