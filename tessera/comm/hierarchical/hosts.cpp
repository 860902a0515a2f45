#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/hierarchical/hosts.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/wire/shm/segment.h>

#include <cstdlib>

namespace tessera::comm::hier {

std::vector<std::string> exchange_hosts(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout) {
  const char* variable = std::getenv("TESSERA_HOST_ID");
  const std::string mine =
      variable != nullptr && *variable != 0 ? concat("TESSERA_HOST_ID=", variable) : wire::shm::host_identity();
  return exchange_texts(store, "host", rank, size, mine, timeout);
}

}  // namespace tessera::comm::hier
