#include <tessera/base/system/gpu.h>

#include <tessera/base/file.h>

namespace tessera {

bool has_gpu_driver() { return path_exists("/dev/nvidiactl") || path_exists("/dev/dxg"); }

}  // namespace tessera
