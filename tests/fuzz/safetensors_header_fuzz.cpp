// libFuzzer entry for the safetensors header: for any bytes the parser accepts a header whose tensors tile the file
// exactly, or throws InputError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <tessera/base/error.h>
#include <tessera/format/safetensors/safetensors.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto header = tessera::format::parse_safetensors_header(std::as_bytes(std::span(data, size)), "fuzzed");
    std::uint64_t end = header.data_begin;
    for (const auto& tensor : header.tensors) {
      if (header.data_begin + tensor.begin != end || tensor.end < tensor.begin) std::abort();
      end = header.data_begin + tensor.end;
    }
    if (end != size) std::abort();
  } catch (const tessera::InputError&) {
  }
  return 0;
}
