// libFuzzer entry for the index of sharded weights: for any text its files are plain names, each once, and each tensor
// is in one of them, or it throws InputError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/safetensors/safetensors_index.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const auto index = format::parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "fuzzed");
    std::set<std::string> files, tensors;
    for (const std::string& file : index.files)
      if (!format::is_plain_file_name(file) || !file.ends_with(".safetensors") || !files.insert(file).second)
        std::abort();
    std::vector<bool> used(index.files.size());
    for (const auto& entry : index.tensors) {
      if (entry.file >= index.files.size() || !tensors.insert(entry.tensor).second) std::abort();
      used[entry.file] = true;
    }
    for (const bool was : used)
      if (!was) std::abort();
  } catch (const InputError&) {
  }
  return 0;
}
