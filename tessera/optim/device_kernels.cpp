#include <tessera/comm/backend_plugin.h>
#include <tessera/optim/device_kernels.h>

namespace tessera::optim {

const DeviceKernels& device_kernels() {
  static const DeviceKernels& table = comm::plugin_table<DeviceKernels>("cuda");
  return table;
}

}  // namespace tessera::optim
