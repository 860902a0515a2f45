// libFuzzer entry for GGUF: any bytes give a header whose tensors are inside the file without overlap, readable
// metadata, and a model that converts, or InputError.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/format/gguf/gguf.h>
#include <tessera/format/gguf/gguf_to_hf.h>

namespace {

using namespace tessera::format;

void check_places(const GgufFile& file) {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : file.tensors()) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  std::uint64_t end = 0;
  for (const GgufTensor* tensor : order) {
    if (tensor->begin < end || tensor->end < tensor->begin || tensor->begin % file.header().alignment != 0)
      std::abort();
    end = tensor->end;
    if (file.find(tensor->name) != tensor) std::abort();
  }
  if (!order.empty() && file.header().data_begin + end > file.file_bytes()) std::abort();
}

/// Uses the accessor that fits each type; the others only throw, which is slow.
void read_metadata(const GgufFile& file) {
  for (const auto& [key, value] : file.header().metadata) {
    if (value.type == GgufType::string) {
      file.text(key);
    } else if (value.type == GgufType::boolean) {
      file.boolean(key);
    } else if (value.type != GgufType::array) {
      file.real(key);
    } else if (value.element == GgufType::string) {
      file.strings(key);
    } else if (value.element == GgufType::i32) {
      file.integers(key);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const GgufFile file(std::as_bytes(std::span(data, size)), "fuzzed");
    check_places(file);
    read_metadata(file);
    const GgufToHf plan = plan_gguf_to_hf(file, {});
    hf_config(plan.model, "float32");
    std::vector<std::byte> out;
    for (const HfTensor& tensor : plan.tensors) {
      out.resize(static_cast<std::size_t>(tensor.source->elements()) * 4);
      read_gguf_tensor(file, tensor, DType::f32, out, 1);
      out.resize(static_cast<std::size_t>(tensor.source->elements()) * 2);
      read_gguf_tensor(file, tensor, DType::bf16, out, 1);
    }
  } catch (const tessera::InputError&) {
  }
  return 0;
}
