#include <tessera/comm/backend_plugin.h>
#include <tessera/xla/devices.h>

namespace tessera::xla {

std::shared_ptr<Devices> open_devices(const DeviceRequest& request) {
  return comm::plugin_table<XlaPlugin>("xla").open(request);
}

}  // namespace tessera::xla
