#include <tessera/base/error.h>
#include <tessera/comm/backend_plugin.h>

#include <dlfcn.h>

namespace tessera::comm {

const BackendPlugin& backend_plugin(const std::string& device) {
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
  using Entry = const BackendPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "tessera_backend_plugin"));
  if (entry == nullptr)
    throw InputError(concat(library, " exports no tessera_backend_plugin: it is not a plug-in of Tessera."));
  const BackendPlugin* plugin = entry();
  if (plugin == nullptr || plugin->abi != BackendPlugin::current_abi) {
    throw InputError(concat(library, " is of another build of Tessera (interface ",
                            plugin == nullptr ? -1 : plugin->abi, ", expected ", BackendPlugin::current_abi,
                            "); rebuild both together."));
  }
  return *plugin;
}

}  // namespace tessera::comm
