#pragma once
/// \file
/// How the ranks of a job find each other: the store, who joined, whether all run the same build.

#include <c10/util/intrusive_ptr.h>

#include <tessera/launch/environment.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace tessera::comm {

/// Opens the job's key-value store: rank 0 serves it (on the environment's socket if it has one), unless the launcher's
/// agent does. Errors name host and port. Every key is under a prefix of this run (restarts by an agent do not see old
/// keys).
c10::intrusive_ptr<c10d::Store> open_store(const launch::RankEnvironment& environment,
                                           std::chrono::milliseconds timeout);

/// Waits until every rank has joined with the same `build` text. On failure every rank that is there throws the same
/// Error: the missing ranks, or the ranks of another build, or a rank that joined twice.
void rendezvous(c10d::Store& store, const launch::RankEnvironment& environment, const std::string& build,
                std::chrono::milliseconds timeout);

/// The value of a key, or nullopt when nobody sets it within `timeout`. Throws c10::Error when the store is lost.
std::optional<std::string> wait_for_key(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout);

/// Leaves together: waits (at most `timeout`) until every rank has called it, then rank 0, which may host the store,
/// until the others have gone. Returns the ranks that did not come, for a warning; never throws for them.
std::vector<int> leave(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);

/// What must be equal on every rank: versions and the sizes of what crosses the wire.
std::string build_text();

}  // namespace tessera::comm
