#pragma once
/// \file
/// How the ranks of a job find each other: the store, who joined, whether all run the same build.

#include <c10/util/intrusive_ptr.h>

#include <tessera/comm/fingerprint.h>
#include <tessera/launch/cli/environment.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace tessera::comm {

/// Opens the job's key-value store: our agent's authenticated one if the environment names it (AgentStore), else a
/// c10d::TCPStore, which rank 0 serves (on the environment's socket if it has one) unless torchrun's agent does (rank 0
/// then logs which store is joined). Errors name host and port. Every key is under a prefix of this run: restarts by an
/// agent do not see old keys, and our store refuses ranks of an older generation.
c10::intrusive_ptr<c10d::Store> open_store(const launch::RankEnvironment& environment,
                                           std::chrono::milliseconds timeout);

/// Waits until every rank has joined with the same `build` text and the same `facts`. On failure every rank that is
/// there throws the same Error: the missing ranks, or the facts that differ with their values and ranks (within a
/// second of the joining of the first rank that differs, whoever is missing then), or a rank that joined twice. While
/// it waits, the first rank that is there logs who is missing and who has come, after 5 s and then every 10 s.
/// Facts or builds that differ are an InputError: the same start again would fail again.
void rendezvous(c10d::Store& store, const launch::RankEnvironment& environment, const std::string& build,
                std::chrono::milliseconds timeout, const Fingerprint& facts = {});

/// The value of a key, or nullopt when nobody sets it within `timeout`. Throws c10::Error when the store is lost.
std::optional<std::string> wait_for_key(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout);

/// Every rank's text for one `question` ("device"; once per question and store), by rank. Collective; throws Error
/// naming a rank that does not come.
std::vector<std::string> exchange_texts(c10d::Store& store, const std::string& question, int rank, int size,
                                        const std::string& mine, std::chrono::milliseconds timeout);

/// Leaves together: waits (at most `timeout`) until every rank has called it, then rank 0, which may host the store,
/// until the others have gone. Returns the ranks that did not come, for a warning; never throws for them.
std::vector<int> leave(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);

/// What must be equal on every rank: versions and the sizes of what crosses the wire.
std::string build_text();

}  // namespace tessera::comm
