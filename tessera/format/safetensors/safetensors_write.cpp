// The writer of safetensors files; write_safetensors's output is byte-identical to the reference writer's.

#include <tessera/format/safetensors/safetensors.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

namespace tessera::format {
namespace {

// The reference writer sorts first by its own enumeration of dtypes, largest first, then by name.
int write_rank(DType dtype) {
  constexpr DType order[] = {DType::u64, DType::i64, DType::f64, DType::f32, DType::u32, DType::i32,    DType::bf16,
                             DType::f16, DType::u16, DType::i16, DType::i8,  DType::u8,  DType::boolean};
  return static_cast<int>(std::find(std::begin(order), std::end(order), dtype) - std::begin(order));
}

std::string quoted(const std::string& text) { return dump_json(Value::of(text), -1); }

// Compact JSON, metadata first.
std::string header_of(std::span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) json += quoted(key) + ":" + quoted(value) + ",";
    json.back() = '}';
    json += ',';
  }
  std::uint64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    json += quoted(tensor.name) + ":{\"dtype\":\"" + dtype_name(tensor.dtype) + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    const std::uint64_t end = begin + byte_size(tensor);  // each is below 2^63, so the sum cannot wrap before the check
    TESSERA_CHECK(end >> 63 == 0, "safetensors: tensor '", tensor.name, "' ends beyond 2^63 bytes");
    json += concat("],\"data_offsets\":[", begin, ",", end, "]},");
    begin = end;
  }
  if (json.size() > 1) json.pop_back();  // the last comma
  json += '}';
  return json;
}

void check_names(std::span<const TensorSpec> tensors) {
  std::vector<std::string_view> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  TESSERA_CHECK(twice == names.end(), "safetensors: two tensors are named '", *twice, "'");
  TESSERA_CHECK(!std::binary_search(names.begin(), names.end(), "__metadata__"),
                "safetensors: a tensor may not be named __metadata__");
}

}  // namespace

std::uint64_t byte_size(const TensorSpec& tensor) {
  std::int64_t bytes = static_cast<std::int64_t>(dtype_size(tensor.dtype));
  bool empty = false;
  for (const std::int64_t dim : tensor.shape) {
    TESSERA_CHECK(dim >= 0, "safetensors: tensor '", tensor.name, "' has a negative dimension ", dim);
    empty = empty || dim == 0;
    TESSERA_CHECK(dim == 0 || !__builtin_mul_overflow(bytes, dim, &bytes), "safetensors: tensor '", tensor.name,
                  "' has 2^63 bytes or more");
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

std::string safetensors_front(std::span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata,
                              std::size_t alignment) {
  TESSERA_CHECK(alignment >= 8 && (alignment & (alignment - 1)) == 0, "safetensors: data aligned to ", alignment,
                " bytes");
  check_names(tensors);
  std::string json = header_of(tensors, metadata);
  constexpr std::size_t length_bytes = 8;
  json.resize((length_bytes + json.size() + alignment - 1) / alignment * alignment - length_bytes, ' ');
  TESSERA_CHECK(json.size() <= kSafetensorsMaxHeader, "safetensors: the header has ", json.size(),
                " bytes; readers accept at most ", kSafetensorsMaxHeader, ": write the ", tensors.size(),
                " tensors as several files");
  std::string front;
  for (std::size_t i = 0; i < length_bytes; ++i) front += static_cast<char>((json.size() >> (8 * i)) & 0xFF);
  return front + json;
}

void sort_for_writing(std::vector<TensorSource>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSource& a, const TensorSource& b) {
    return std::pair(write_rank(a.dtype), std::string_view(a.name)) <
           std::pair(write_rank(b.dtype), std::string_view(b.name));
  });
}

Digest write_safetensors(const std::string& path, std::vector<TensorSource> tensors,
                         const std::map<std::string, std::string>& metadata) {
  sort_for_writing(tensors);
  std::vector<TensorSpec> specs;
  for (const TensorSource& tensor : tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  const std::string front = safetensors_front(specs, metadata, 8);  // the reference writer's alignment
  DigestBuilder digest;
  write_file_atomically(path, [&](int fd) {
    const auto write = [&](std::span<const std::byte> bytes) {
      digest.update(bytes);
      write_all(fd, bytes, path);
    };
    write(std::as_bytes(std::span(front)));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto bytes = tensors[i].bytes();
      TESSERA_CHECK(bytes.size() == byte_size(specs[i]), "safetensors: tensor '", specs[i].name, "' gave ",
                    bytes.size(), " bytes, but its shape and dtype need ", byte_size(specs[i]));
      write(bytes);
    }
  });
  return std::move(digest).finish();
}

}  // namespace tessera::format
