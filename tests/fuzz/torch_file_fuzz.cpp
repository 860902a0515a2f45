// libFuzzer entry for PyTorch's files: any bytes of a torch.save file, a pickle or DCP's .metadata are read with every
// tensor inside the file and every box inside its tensor, or throw InputError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include <tessera/base/error.h>
#include <tessera/format/torch/dcp.h>
#include <tessera/format/torch/pickle.h>
#include <tessera/format/torch/torch_file.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const auto bytes = std::as_bytes(std::span(data, size));
  static const std::string name = "fuzzed";
  static constexpr std::string_view allowed[] = {"torch.", "collections.OrderedDict"};
  try {
    const format::TorchFile file = format::parse_torch_file(bytes, name);
    for (const format::TorchTensor& t : file.tensors) {
      if (t.begin > t.end || t.end > size) std::abort();
      if (t.contiguous() && !t.shape.empty()) {
        std::uint64_t elements = 1;
        for (const std::int64_t n : t.shape) elements *= static_cast<std::uint64_t>(n);
        if (elements * format::dtype_size(t.dtype) != t.end - t.begin) std::abort();
      }
    }
    format::verify_torch_file(bytes, file, name);
  } catch (const InputError&) {
  }
  try {
    const format::Pickle pickle = format::parse_pickle(bytes, name, allowed);
    for (std::uint32_t i = 0; i < pickle.size(); ++i)
      for (const std::uint32_t item : pickle[i].items)
        if (item >= pickle.size()) std::abort();
  } catch (const InputError&) {
  }
  try {
    for (const format::DcpTensor& tensor : format::parse_dcp_metadata(bytes, name).tensors)
      for (const format::DcpBox& box : tensor.boxes)
        for (std::size_t d = 0; d < tensor.shape.size(); ++d)
          if (box.sizes[d] > tensor.shape[d] - box.offsets[d]) std::abort();
  } catch (const InputError&) {
  }
  return 0;
}
