#pragma once
/// \file
/// The backend `shm`: collectives of the ranks of one host through memory that they share. CPU tensors; those from
/// comm::empty_shared are read and written where they are, others pass through a staging area.

#include <tessera/comm/backend.h>

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>

namespace c10d {
class Store;
}

namespace tessera::comm::shm {

struct BackendOptions {
  std::string name;  ///< of the group
  int rank = 0, size = 1;
  int job_rank = 0;    ///< of this process, for error texts
  int host_ranks = 1;  ///< ranks of the job on this host: with more of them than cores, waiting ranks sleep at once
  c10::intrusive_ptr<c10d::Store> store;  ///< keys are unique to this group
  std::chrono::milliseconds connect_timeout{300'000};
  std::chrono::milliseconds timeout{1'800'000};  ///< of a collective
};

/// Collective over the group's ranks. Throws Error when a peer does not come or its memory cannot be mapped, InputError
/// for more than 64 ranks.
std::shared_ptr<Backend> make_backend(BackendOptions options);

/// Whether all `size` ranks can share memory (one machine, one process namespace, one user). Collective; every rank
/// gets the same answer. Throws Error when a rank does not come.
bool on_one_host(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);

}  // namespace tessera::comm::shm
