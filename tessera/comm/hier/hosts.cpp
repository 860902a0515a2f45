#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/hier/hosts.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/comm/shm/segment.h>

#include <cstdlib>

namespace tessera::comm::hier {

std::vector<std::string> exchange_texts(c10d::Store& store, const std::string& question, int rank, int size,
                                        const std::string& mine, std::chrono::milliseconds timeout) {
  const auto key = [&](int r) { return concat("place/", question, "/", r); };
  store.set(key(rank), mine);
  std::vector<std::string> texts;
  for (int r = 0; r < size; ++r) {
    const auto theirs = wait_for_key(store, key(r), timeout);
    if (!theirs) {
      throw Error(concat("rank ", r, " did not say which ", question, " it is on within ",
                         format_real(static_cast<double>(timeout.count()) / 1000, 4), " s"));
    }
    texts.push_back(*theirs);
  }
  return texts;
}

std::vector<std::string> exchange_hosts(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout) {
  const char* variable = std::getenv("TESSERA_HOST_ID");
  const std::string mine =
      variable != nullptr && *variable != 0 ? concat("TESSERA_HOST_ID=", variable) : shm::host_identity();
  return exchange_texts(store, "host", rank, size, mine, timeout);
}

}  // namespace tessera::comm::hier
