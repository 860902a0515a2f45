#pragma once
/// \file
/// Which ranks share a host: every rank tells the others through the store.

#include <chrono>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace tessera::comm::hier {

/// The texts of all ranks, in their order; equal texts mean ranks that can share memory (shm::host_identity()).
/// TESSERA_HOST_ID in the environment takes the place of the machine's own identity: tests play several hosts on one
/// machine; the ranks of one text must still be able to share memory. Collective; throws Error naming a rank that does
/// not come.
std::vector<std::string> exchange_hosts(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);

}  // namespace tessera::comm::hier
