// The backends `gloo` and `c10d_gloo`. The only file that includes ProcessGroupGloo, through the stub headers of
// cmake/gloo_stubs.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <tessera/comm/backend.h>
#include <tessera/comm/c10d/c10d_backend.h>
#include <tessera/comm/gloo.h>

namespace tessera::comm {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const GlooInterface& interface, std::chrono::milliseconds connect_timeout,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(connect_timeout);
  options->threads = 1;  // collectives of a group run one at a time, in the order in which they were started
  options->devices.push_back(interface.name.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(interface.address)
                                                    : c10d::ProcessGroupGloo::createDeviceForInterface(interface.name));
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  group->setTimeout(timeout);
  return group;
}

namespace {

std::shared_ptr<Backend> connect(const BackendRequest& request, const layout::BackendRow& row, bool own_collectives) {
  const launch::RankEnvironment& job = request.environment;
  const bool one_host = job.local_world_size == job.world_size;
  auto gloo =
      make_gloo(request.store, request.rank, request.size, gloo_interface(job.master_addr, job.master_port, one_host),
                request.connect_timeout, request.timeout);
  C10dOptions options;
  options.name = request.name;
  options.kind = row.name;
  options.own_collectives = own_collectives;
  return make_c10d_backend(std::move(gloo), std::move(options));
}

}  // namespace
}  // namespace tessera::comm

namespace tessera::layout {

std::shared_ptr<comm::Backend> Gloo::make(const comm::BackendRequest& request) {
  return comm::connect(request, row, /*own_collectives=*/true);
}

std::shared_ptr<comm::Backend> C10dGloo::make(const comm::BackendRequest& request) {
  return comm::connect(request, row, /*own_collectives=*/false);
}

}  // namespace tessera::layout
