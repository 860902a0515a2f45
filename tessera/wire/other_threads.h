#pragma once
/// \file
/// Whether a blocked thread is the only one of the program that could start operations.

namespace tessera::wire {

/// The name of every helper thread of wire/ and c/ (quiet_thread()).
constexpr const char* helper_thread = "tessera-wire";

/// True if this process has threads besides the calling one and the helper threads. Reads /proc; where it is
/// unreadable: true.
bool has_other_threads();

}  // namespace tessera::wire
