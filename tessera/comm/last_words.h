#pragma once
/// \file
/// What a rank still says when an exception that nobody catches ends it.

namespace tessera::comm {

/// From now on such an exception is written on the board before the process dies of it. One that a thread of Gloo
/// throws because the ranks' collectives did not match (EnforceNotMet: unexpected size) does not end the process at
/// once: the thread is stopped, and the threads that wait for a collective throw the mismatch as their Error. Once per
/// process.
void install_last_words();

}  // namespace tessera::comm
