#pragma once
/// \file
/// Finds which ranks share a host: every rank publishes its host through the store.

#include <chrono>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace tessera::comm::hier {

/// Every rank's host identity, by rank; ranks with equal texts can share memory (shm::host_identity()). TESSERA_HOST_ID
/// in the environment overrides the machine's identity, so that tests can simulate several hosts on one machine; ranks
/// with the same text must still be able to share memory. Collective; throws Error naming a rank that does not arrive.
std::vector<std::string> exchange_hosts(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);

}  // namespace tessera::comm::hier
