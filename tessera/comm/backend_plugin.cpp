#include <tessera/base/error.h>
#include <tessera/base/system/plugin.h>
#include <tessera/comm/backend_plugin.h>

namespace tessera::comm {

const void* plugin_table(const std::string& device, const char* symbol, int abi) {
  const std::string library = concat("libtessera_", device, ".so");
  using Entry = const void* (*)();
  // Shared symbols: LibTorch's registries. Never closed: tensors may outlive every group.
  const auto entry = [&] {
    try {
      return reinterpret_cast<Entry>(load_entry(library, symbol, Symbols::shared));
    } catch (const Error& error) {
      throw InputError(
          concat("the ", device == "cuda" ? "CUDA" : device,
                 " plug-in is not built, or what it needs is not installed: ", error.what(),
                 ". Build with TESSERA_CUDA=ON on a machine with nvcc 13 and nccl.h, or use --backend gloo on CPU."));
    }
  }();
  const void* table = entry();
  const int found = table == nullptr ? -1 : *static_cast<const int*>(table);
  if (found != abi) {
    throw InputError(concat(library, " is of another build of Tessera (interface ", found, " of ", symbol,
                            ", expected ", abi, "); rebuild both together."));
  }
  return table;
}

}  // namespace tessera::comm
