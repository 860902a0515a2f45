#include <tessera/format/safetensors/safetensors.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

namespace tessera::format {
namespace {

constexpr std::size_t kLengthBytes = 8;

struct DTypeRow {
  DType dtype;
  const char* name;
  std::size_t size;
};
constexpr std::array<DTypeRow, 13> kDTypes{{
    {DType::boolean, "BOOL", 1},
    {DType::u8, "U8", 1},
    {DType::i8, "I8", 1},
    {DType::i16, "I16", 2},
    {DType::u16, "U16", 2},
    {DType::i32, "I32", 4},
    {DType::u32, "U32", 4},
    {DType::i64, "I64", 8},
    {DType::u64, "U64", 8},
    {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},
    {DType::f32, "F32", 4},
    {DType::f64, "F64", 8},
}};

const DTypeRow& row_of(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row;
  }
  throw Error(concat("safetensors: no such dtype: ", static_cast<int>(dtype)));
}

std::string dtype_list() {
  std::vector<std::string> names;
  for (const DTypeRow& row : kDTypes) names.emplace_back(row.name);
  return join(names);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> dims;
  for (std::int64_t dim : shape) dims.push_back(std::to_string(dim));
  return "[" + join(dims) + "]";
}

// Throws InputError "PATH: tensor 'NAME': ...".
template <class... Parts>
[[noreturn]] void bad_tensor(const std::string& path, const std::string& name, const Parts&... parts) {
  throw InputError(concat(path, ": tensor '", name, "': ", parts...));
}

// A non-negative integer in integer notation: as in the reference reader, 2.0 and 2e0 are refused.
std::optional<std::int64_t> as_count(const Value& value) {
  if (value.kind() != Value::Kind::integer || value.as_int() < 0) return std::nullopt;
  return value.as_int();
}

// The size of a tensor in bytes. A zero dimension does not excuse an overflow of the other dimensions, because strides
// are products, too.
std::uint64_t byte_size(const std::string& path, const TensorInfo& tensor) {
  std::int64_t product = static_cast<std::int64_t>(row_of(tensor.dtype).size);
  bool empty = false;
  for (std::int64_t dim : tensor.shape) {
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, dim, &product)) {
      bad_tensor(path, tensor.name, "shape ", shape_text(tensor.shape), " of ", dtype_name(tensor.dtype),
                 " overflows: its bytes must be fewer than 2^63");
    }
  }
  return empty ? 0 : static_cast<std::uint64_t>(product);
}

TensorInfo parse_tensor(const std::string& path, const std::string& name, const Value& entry) {
  if (!entry.is_object())
    bad_tensor(path, name, "its header entry must be an object with dtype, shape and data_offsets");
  const Value *dtype = nullptr, *shape = nullptr, *offsets = nullptr;
  for (const auto& [key, value] : entry.members()) {
    if (key == "dtype") {
      dtype = &value;
    } else if (key == "shape") {
      shape = &value;
    } else if (key == "data_offsets") {
      offsets = &value;
    } else {
      bad_tensor(path, name, "unknown key '", key, "'; allowed are dtype, shape and data_offsets");
    }
  }
  if (dtype == nullptr || !dtype->is_string()) bad_tensor(path, name, "dtype is missing or not a string");
  if (shape == nullptr || !shape->is_array()) bad_tensor(path, name, "shape is missing or not an array");
  if (offsets == nullptr || !offsets->is_array() || offsets->items().size() != 2) {
    bad_tensor(path, name, "data_offsets is missing or not an array of two integers");
  }
  TensorInfo info;
  info.name = name;
  const auto known = parse_dtype(dtype->as_string());
  if (!known) bad_tensor(path, name, "dtype ", dtype->as_string(), " is not supported; supported are ", dtype_list());
  info.dtype = *known;
  info.shape.reserve(shape->items().size());
  for (const Value& dim : shape->items()) {
    const auto count = as_count(dim);
    if (!count)
      bad_tensor(path, name, "shape ", dump_json(*shape, -1), ": dimensions must be integers >= 0 below 2^63");
    info.shape.push_back(*count);
  }
  const auto begin = as_count(offsets->items()[0]), end = as_count(offsets->items()[1]);
  if (!begin || !end || *begin > *end) {
    bad_tensor(path, name, "data_offsets ", dump_json(*offsets, -1), ": must be integers with 0 <= begin <= end");
  }
  info.begin = static_cast<std::uint64_t>(*begin);
  info.end = static_cast<std::uint64_t>(*end);
  const std::uint64_t needed = byte_size(path, info);
  if (info.end - info.begin != needed) {
    bad_tensor(path, name, "data_offsets [", info.begin, ", ", info.end, "] span ", info.end - info.begin,
               " bytes, but shape ", shape_text(info.shape), " of ", dtype_name(info.dtype), " needs ", needed);
  }
  return info;
}

std::map<std::string, std::string> parse_metadata(const std::string& path, const Value& entry) {
  if (!entry.is_object()) throw InputError(path + ": header: __metadata__ must be an object of strings");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : entry.members()) {
    if (!value.is_string()) throw InputError(concat(path, ": header: __metadata__ entry '", key, "' must be a string"));
    metadata.emplace(key, value.as_string());
  }
  return metadata;
}

// The tensors, sorted by offset, must tile [0, data_size).
void check_tiling(const std::string& path, const std::vector<TensorInfo>& tensors, std::uint64_t data_size) {
  std::uint64_t expected = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.end > data_size) {
      bad_tensor(path, tensor.name, "data_offsets [", tensor.begin, ", ", tensor.end, "] end beyond the ", data_size,
                 " bytes of data in the file: it is truncated or was not copied completely");
    }
    if (tensor.begin != expected) {
      bad_tensor(path, tensor.name, "begins at byte ", tensor.begin, " of the data, but the tensors before it end at ",
                 expected, tensor.begin < expected ? ": tensors must not overlap" : ": tensors must not leave a gap");
    }
    expected = tensor.end;
  }
  if (expected != data_size) {
    throw InputError(concat(path, ": the tensors end at byte ", expected, " of the data, but the file has ", data_size,
                            " bytes of data: ", data_size - expected, " trailing bytes belong to no tensor"));
  }
}

}  // namespace

std::size_t dtype_size(DType dtype) { return row_of(dtype).size; }
const char* dtype_name(DType dtype) { return row_of(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

std::uint64_t safetensors_front_bytes(std::span<const std::byte> front, std::uint64_t file_size,
                                      const std::string& path) {
  if (file_size < kLengthBytes || front.size() < kLengthBytes) {
    throw InputError(concat(path, ": not a safetensors file: it has ", file_size,
                            " bytes, but the length of the header alone takes 8; it is empty or truncated"));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint64_t>(front[i]) << (8 * i);
  if (length > kSafetensorsMaxHeader) {
    throw InputError(concat(path, ": header length ", length, " exceeds the format's limit of ", kSafetensorsMaxHeader,
                            " bytes: not a safetensors file, or damaged"));
  }
  if (length > file_size - kLengthBytes) {
    throw InputError(concat(path, ": header length ", length, " exceeds the ", file_size - kLengthBytes,
                            " bytes that follow it: the file is truncated"));
  }
  return kLengthBytes + length;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& path) {
  return parse_safetensors_header(file, file.size(), path);
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> front, std::uint64_t file_size,
                                           const std::string& path) {
  const std::uint64_t front_bytes = safetensors_front_bytes(front, file_size, path);
  TESSERA_CHECK(front.size() >= front_bytes, path, ": ", front.size(), " of the ", front_bytes,
                " bytes before the data were read");
  const auto bytes = front.first(front_bytes).subspan(kLengthBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty() || text.front() != '{')
    throw InputError(path + ": header: must start with '{': not a safetensors file, or damaged");
  if (!is_utf8(text)) throw InputError(path + ": header: is not valid UTF-8: the file is damaged");

  const Value root = parse_json(text, path + " (header)");
  SafetensorsHeader header;
  header.data_begin = front_bytes;
  header.tensors.reserve(root.members().size());
  for (const auto& [name, entry] : root.members()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(path, entry);
    } else {
      header.tensors.push_back(parse_tensor(path, name, entry));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);  // empty tensors may share an offset
  });
  check_tiling(path, header.tensors, file_size - header.data_begin);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : mapping_(path), header_(parse_safetensors_header(mapping_.bytes(), path)) {
  by_name_.reserve(header_.tensors.size());
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return mapping_.bytes().subspan(header_.data_begin + tensor.begin, tensor.end - tensor.begin);
}

}  // namespace tessera::format
