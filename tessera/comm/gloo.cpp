// The only file that sees ProcessGroupGloo, through the stand-in headers of cmake/gloo_stubs.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <tessera/comm/gloo.h>

namespace tessera::comm {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const GlooInterface& interface, std::chrono::milliseconds connect_timeout,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(connect_timeout);
  options->threads = 1;  // collectives of one group run one after another, in the order they were started
  options->devices.push_back(interface.name.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(interface.address)
                                                    : c10d::ProcessGroupGloo::createDeviceForInterface(interface.name));
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  group->setTimeout(timeout);
  return group;
}

}  // namespace tessera::comm
