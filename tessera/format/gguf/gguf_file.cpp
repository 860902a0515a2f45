// An opened GGUF file: lookups of tensors and typed metadata.

#include <charconv>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/gguf/gguf.h>

namespace tessera::format {
namespace {

template <class Number>
Number load(std::span<const std::byte> bytes) {
  Number out;
  std::memcpy(&out, bytes.data(), sizeof(Number));
  return out;
}

/// The element at `bytes` as int64; nullopt: not an integer type, or a u64 above 2^63 - 1.
std::optional<std::int64_t> integer_at(GgufType type, std::span<const std::byte> bytes) {
  switch (type) {
    case GgufType::u8:
      return load<std::uint8_t>(bytes);
    case GgufType::i8:
      return load<std::int8_t>(bytes);
    case GgufType::u16:
      return load<std::uint16_t>(bytes);
    case GgufType::i16:
      return load<std::int16_t>(bytes);
    case GgufType::u32:
      return load<std::uint32_t>(bytes);
    case GgufType::i32:
      return load<std::int32_t>(bytes);
    case GgufType::i64:
      return load<std::int64_t>(bytes);
    case GgufType::u64: {
      const auto number = load<std::uint64_t>(bytes);
      if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<std::int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : GgufFile({}, path, MappedFile(path)) {}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name)
    : GgufFile(bytes, std::move(name), MappedFile()) {}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name, MappedFile mapping)
    : mapping_(std::move(mapping)),
      path_(std::move(name)),
      bytes_(bytes.empty() ? mapping_.bytes() : bytes),
      header_(parse_gguf_header(bytes_, path_)) {
  for (std::size_t i = 0; i < header_.metadata.size(); ++i) keys_.emplace(header_.metadata[i].first, i);
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) names_.emplace(header_.tensors[i].name, i);
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto place = names_.find(name);
  return place == names_.end() ? nullptr : &header_.tensors[place->second];
}

std::span<const std::byte> GgufFile::bytes(const GgufTensor& tensor) const {
  return bytes_.subspan(header_.data_begin + tensor.begin, tensor.end - tensor.begin);
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto place = keys_.find(key);
  return place == keys_.end() ? nullptr : &header_.metadata[place->second].second;
}

void GgufFile::wrong_type(std::string_view key, const GgufValue& value, const char* expected) const {
  const std::string found = value.type == GgufType::array ? concat("array of ", gguf_type_name(value.element))
                                                          : std::string(gguf_type_name(value.type));
  throw InputError(concat(path(), ": metadata '", key, "' has type ", found, ", expected ", expected));
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* v = value(key);
  if (v == nullptr) return std::nullopt;
  const auto number = integer_at(v->type, v->bytes);
  if (!number) wrong_type(key, *v, "an integer below 2^63");
  return number;
}

std::optional<double> GgufFile::real(std::string_view key) const {
  const GgufValue* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type == GgufType::f64) return load<double>(v->bytes);
  if (v->type == GgufType::f32) {  // 1e-5f means 1e-5, not 9.9999997e-06
    const auto number = load<float>(v->bytes);
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return parse_real(std::string_view(digits, end)).value_or(number);
  }
  const auto number = integer_at(v->type, v->bytes);
  if (!number) wrong_type(key, *v, "a number");
  return static_cast<double>(*number);
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::boolean) wrong_type(key, *v, "bool");
  return v->bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const GgufValue* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::string) wrong_type(key, *v, "string");
  return std::string_view(reinterpret_cast<const char*>(v->bytes.data()), v->bytes.size());
}

std::optional<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  const GgufValue* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::array || v->element != GgufType::string) wrong_type(key, *v, "array of string");
  std::vector<std::string_view> out;
  out.reserve(v->count);
  auto rest = v->bytes;  // lengths were checked when the file was opened
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const auto length = load<std::uint64_t>(rest);
    out.emplace_back(reinterpret_cast<const char*>(rest.data() + 8), length);
    rest = rest.subspan(8 + length);
  }
  return out;
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufValue* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GgufType::array) wrong_type(key, *v, "array of integers");
  std::vector<std::int64_t> out;
  if (v->count == 0) return out;
  out.reserve(v->count);
  const std::uint64_t size = v->bytes.size() / v->count;
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const bool scalar = v->element != GgufType::string && v->element != GgufType::array;
    const auto number = scalar ? integer_at(v->element, v->bytes.subspan(i * size, size)) : std::nullopt;
    if (!number) wrong_type(key, *v, "array of integers below 2^63");
    out.push_back(*number);
  }
  return out;
}

}  // namespace tessera::format
