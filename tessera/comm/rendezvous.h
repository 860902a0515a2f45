#pragma once
/// \file
/// Rendezvous of a job's ranks: opens the store, waits for every rank and checks that all run the same build.

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

/// Opens the job's key-value store: our agent's authenticated store if the environment names it (AgentStore), else a
/// c10d::TCPStore served by rank 0 (on the environment's socket if it has one) or by torchrun's agent; under torchrun,
/// rank 0 logs which store is joined. Errors name host and port. Every key has a prefix unique to this run: after a
/// restart by an agent, old keys are invisible, and our store refuses ranks of an older generation.
c10::intrusive_ptr<c10d::Store> open_store(const launch::RankEnvironment& environment,
                                           std::chrono::milliseconds timeout);

/// Waits until every rank has joined with the same `build` text and the same `facts`. On failure every rank that has
/// joined throws the same Error, which names the missing ranks, a rank that joined twice, or the differing facts with
/// their values and ranks. A difference is reported within a second after the first differing rank joins, even if
/// others are missing. While it waits, the lowest rank that has joined logs after 5 s, and then every 10 s, which ranks
/// have joined and which are missing. Differing facts or builds are an InputError: the same start would fail again.
void rendezvous(c10d::Store& store, const launch::RankEnvironment& environment, const std::string& build,
                std::chrono::milliseconds timeout, const Fingerprint& facts = {});

/// The value of a key, or nullopt if it is not set within `timeout`. Throws c10::Error if the store is lost.
std::optional<std::string> wait_for_key(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout);

/// Exchanges one text per rank; the result is indexed by rank. `question` ("device") is the key: use each once per
/// store. Collective; throws Error naming a rank that does not arrive.
std::vector<std::string> exchange_texts(c10d::Store& store, const std::string& question, int rank, int size,
                                        const std::string& mine, std::chrono::milliseconds timeout);

/// Leaves collectively: waits (at most `timeout`) until every rank has called it; rank 0, which may host the store,
/// then waits until the others have left. Returns the ranks that did not call it, for a warning; never throws for them.
std::vector<int> leave(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);

/// Versions, and sizes of the types sent between ranks; must be equal on every rank.
std::string build_text();

}  // namespace tessera::comm
