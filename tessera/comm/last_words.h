#pragma once
/// \file
/// Reports an uncaught exception before it ends the rank.

namespace tessera::comm {

/// Installs a terminate handler that writes an uncaught exception on the board before the process dies. If a thread of
/// Gloo throws because the ranks' collectives did not match (EnforceNotMet: unexpected size), the process does not end
/// at once: that thread is stopped, and the threads that wait for a collective throw the mismatch as their Error. Call
/// once per process.
void install_last_words();

}  // namespace tessera::comm
