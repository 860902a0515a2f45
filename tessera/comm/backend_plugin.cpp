#include <tessera/base/error.h>
#include <tessera/comm/backend_plugin.h>

#include <dlfcn.h>

namespace tessera::comm {

const void* plugin_table(const std::string& device, const char* symbol, int abi) {
  const std::string library = concat("libtessera_", device, ".so");
  // dlopen returns the library already loaded on later calls. It is never closed: tensors may outlive every group.
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    const char* cause = dlerror();
    throw InputError(
        concat("the ", device == "cuda" ? "CUDA" : device,
               " plug-in is not built, or what it needs is not installed: ", cause == nullptr ? "" : cause,
               ". Build with TESSERA_CUDA=ON on a machine with nvcc 13 and nccl.h, or use --backend gloo on CPU."));
  }
  using Entry = const void* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, symbol));
  if (entry == nullptr)
    throw InputError(
        concat(library, " exports no ", symbol, ": it is of another build of Tessera, or no plug-in of it."));
  const void* table = entry();
  const int found = table == nullptr ? -1 : *static_cast<const int*>(table);
  if (found != abi) {
    throw InputError(concat(library, " is of another build of Tessera (interface ", found, " of ", symbol,
                            ", expected ", abi, "); rebuild both together."));
  }
  return table;
}

}  // namespace tessera::comm
