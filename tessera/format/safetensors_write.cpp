// The writer of safetensors files; its layout is byte for byte that of the reference writer.

#include <tessera/format/safetensors.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

namespace tessera::format {
namespace {

// The reference writer sorts by its own enumeration of dtypes, largest first; only then by name.
int write_rank(DType dtype) {
  constexpr DType order[] = {DType::u64, DType::i64, DType::f64, DType::f32, DType::u32, DType::i32,    DType::bf16,
                             DType::f16, DType::u16, DType::i16, DType::i8,  DType::u8,  DType::boolean};
  return static_cast<int>(std::find(std::begin(order), std::end(order), dtype) - std::begin(order));
}

std::string quoted(const std::string& text) { return dump_json(Value::of(text), -1); }

std::uint64_t byte_size(const TensorSource& tensor) {
  std::uint64_t bytes = dtype_size(tensor.dtype);
  for (std::int64_t dim : tensor.shape) {
    TESSERA_CHECK(dim >= 0, "safetensors: tensor '", tensor.name, "' has a negative dimension ", dim);
    bytes *= static_cast<std::uint64_t>(dim);
  }
  return bytes;
}

// Compact JSON, metadata first, padded with spaces so that the data begin at a multiple of 8.
std::string make_header(const std::vector<TensorSource>& tensors, const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) json += quoted(key) + ":" + quoted(value) + ",";
    json.back() = '}';
    json += ',';
  }
  std::uint64_t begin = 0;
  for (const TensorSource& tensor : tensors) {
    json += quoted(tensor.name) + ":{\"dtype\":\"" + dtype_name(tensor.dtype) + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    const std::uint64_t end = begin + byte_size(tensor);
    json += concat("],\"data_offsets\":[", begin, ",", end, "]},");
    begin = end;
  }
  if (json.size() > 1) json.pop_back();  // the last comma
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

}  // namespace

void sort_for_writing(std::vector<TensorSource>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSource& a, const TensorSource& b) {
    return std::pair(write_rank(a.dtype), std::string_view(a.name)) <
           std::pair(write_rank(b.dtype), std::string_view(b.name));
  });
}

Digest write_safetensors(const std::string& path, std::vector<TensorSource> tensors,
                         const std::map<std::string, std::string>& metadata) {
  sort_for_writing(tensors);
  std::vector<std::string> names;
  for (const TensorSource& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  TESSERA_CHECK(twice == names.end(), "safetensors: ", path, ": two tensors are named '", *twice, "'");
  TESSERA_CHECK(!std::binary_search(names.begin(), names.end(), "__metadata__"), "safetensors: ", path,
                ": a tensor may not be named __metadata__");

  const std::string header = make_header(tensors, metadata);
  DigestBuilder digest;
  write_file_atomically(path, [&](int fd) {
    const auto write = [&](std::span<const std::byte> bytes) {
      digest.update(bytes);
      write_all(fd, bytes, path);
    };
    std::string front;
    for (int i = 0; i < 8; ++i) front += static_cast<char>((header.size() >> (8 * i)) & 0xFF);
    front += header;
    write(std::as_bytes(std::span(front)));
    for (const TensorSource& tensor : tensors) {
      const auto bytes = tensor.bytes();
      TESSERA_CHECK(bytes.size() == byte_size(tensor), "safetensors: tensor '", tensor.name, "' gave ", bytes.size(),
                    " bytes, but its shape and dtype need ", byte_size(tensor));
      write(bytes);
    }
  });
  return std::move(digest).finish();
}

}  // namespace tessera::format
