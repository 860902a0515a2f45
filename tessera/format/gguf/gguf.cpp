// Parsing of GGUF headers: first the reader and its error messages, then the rules.

#include <tessera/format/gguf/gguf.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_set>

#include <tessera/base/byte_cursor.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::format {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place: little-endian only");

constexpr std::uint64_t kMostEntries = 1u << 20;  // limit for metadata entries and for tensors, far above any model
constexpr std::uint64_t kMostKeyBytes = 65535;    // the format's limit for keys; also used for names
constexpr std::uint64_t kMostAlignment = 1u << 20;
constexpr int kMostDepth = 8;
constexpr std::uint32_t kMostDimensions = 4;  // GGML_MAX_DIMS
constexpr std::uint32_t kTypeCount = 13;
constexpr std::array<const char*, kTypeCount> kTypeNames = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                            "int32",  "float32", "bool",   "string", "array",
                                                            "uint64", "int64",   "float64"};
/// Bytes per value; 0: variable.
constexpr std::array<std::uint64_t, kTypeCount> kTypeBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::uint64_t bytes_of(GgufType type) { return kTypeBytes[static_cast<std::size_t>(type)]; }

/// Minimum bytes per array element.
std::uint64_t least_bytes(GgufType type) {
  if (type == GgufType::string) return 8;
  if (type == GgufType::array) return 12;
  return bytes_of(type);
}

/// The item being read, for error messages: formatted only when there is an error.
struct What {
  const char* kind;
  std::string_view name;    ///< if empty, `index` is used
  std::uint64_t index = 0;  ///< the item's index
  friend std::ostream& operator<<(std::ostream& out, const What& what) {
    out << what.kind;
    return what.name.empty() ? out << " " << what.index : out << " '" << what.name << "'";
  }
};

/// Reads forward through the file; throws at the end of the file, naming the item being read.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& path) : bytes_(file), path_(path) {}

  std::uint64_t position() const { return bytes_.position(); }
  std::uint64_t left() const { return bytes_.left(); }
  std::span<const std::byte> between(std::uint64_t begin, std::uint64_t end) const {
    return bytes_.between(begin, end);
  }

  std::span<const std::byte> take(std::uint64_t bytes, const What& what) {
    return bytes_.take(bytes, [&] { cut_off(bytes, what); });
  }

  template <class Number>
  Number number(const What& what) {
    return bytes_.number<Number>([&] { cut_off(sizeof(Number), what); });
  }

  std::string_view string(const What& what, std::uint64_t most = ~std::uint64_t{0}) {
    const auto length = number<std::uint64_t>(what);
    if (length > most) fail(what, " has ", length, " bytes; at most ", most, " are allowed");
    const std::uint64_t begin = position();
    const auto bytes = take(length, what);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!is_utf8(text)) fail(what, " at offset ", begin, " is not valid UTF-8");
    return text;
  }

  /// Reads a key or name. They appear in messages, so control characters are refused.
  std::string_view name(const What& what) {
    const std::string_view text = string(what, kMostKeyBytes);
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
        fail(what, " contains the control character ", static_cast<int>(c), ", which is not allowed in names");
    return text;
  }

  GgufType type(const What& what) {
    const auto number_ = number<std::uint32_t>(what);
    if (number_ >= kTypeCount) fail(what, " has type ", number_, "; valid types are 0 to ", kTypeCount - 1);
    return static_cast<GgufType>(number_);
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(path_, ": ", parts...));
  }

 private:
  [[noreturn]] void cut_off(std::uint64_t bytes, const What& what) const {
    fail(what, " needs ", bytes, " bytes at offset ", position(), ", but ", left(),
         " are left: the file is truncated or damaged");
  }

  ByteCursor bytes_;
  const std::string& path_;
};

void check_booleans(const Cursor& cursor, std::span<const std::byte> bytes, const What& what) {
  for (std::byte b : bytes)
    if (b > std::byte{1})
      cursor.fail(what, " is a bool of value ", std::to_integer<int>(b), "; only 0 and 1 are allowed");
}

/// Skips `count` elements, checking them.
void skip_elements(Cursor& cursor, GgufType type, std::uint64_t count, const What& what, int depth);

void skip_array(Cursor& cursor, const What& what, int depth) {
  if (depth > kMostDepth) cursor.fail(what, " has arrays nested deeper than ", kMostDepth);
  const GgufType element = cursor.type(what);
  skip_elements(cursor, element, cursor.number<std::uint64_t>(what), what, depth);
}

void skip_elements(Cursor& cursor, GgufType type, std::uint64_t count, const What& what, int depth) {
  const std::uint64_t least = least_bytes(type);
  if (count > cursor.left() / least)
    cursor.fail(what, " claims ", count, " elements of ", gguf_type_name(type), ", which need at least ", least,
                " bytes each, but ", cursor.left(), " bytes are left: the file is truncated or damaged");
  if (type == GgufType::string) {
    for (std::uint64_t i = 0; i < count; ++i) cursor.string(what);
  } else if (type == GgufType::array) {
    for (std::uint64_t i = 0; i < count; ++i) skip_array(cursor, what, depth + 1);
  } else {
    const auto bytes = cursor.take(count * least, what);
    if (type == GgufType::boolean) check_booleans(cursor, bytes, what);
  }
}

GgufValue read_value(Cursor& cursor, const What& what) {
  GgufValue value;
  value.type = cursor.type(what);
  if (value.type == GgufType::string) {
    const std::string_view text = cursor.string(what);
    value.bytes = std::as_bytes(std::span(text.data(), text.size()));
    return value;
  }
  if (value.type == GgufType::array) {
    value.element = cursor.type(what);
    value.count = cursor.number<std::uint64_t>(what);
    const std::uint64_t begin = cursor.position();
    skip_elements(cursor, value.element, value.count, what, 1);
    value.bytes = cursor.between(begin, cursor.position());
    return value;
  }
  const std::uint64_t begin = cursor.position();
  skip_elements(cursor, value.type, 1, what, 0);
  value.bytes = cursor.between(begin, cursor.position());
  return value;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::vector<std::string> parts;
  for (std::int64_t n : shape) parts.push_back(std::to_string(n));
  return "[" + join(parts) + "]";
}

/// Reads a tensor's description. Offset and end are relative to the data section, whose size is not yet known.
GgufTensor read_tensor(Cursor& cursor, std::uint64_t index) {
  GgufTensor tensor;
  tensor.name = cursor.name(What{"the name of tensor", {}, index});
  const What what{"tensor", tensor.name};
  if (tensor.name.empty()) cursor.fail("tensor ", index, " has no name");
  const auto dimensions = cursor.number<std::uint32_t>(what);
  if (dimensions > kMostDimensions)
    cursor.fail(what, ": ", dimensions, " dimensions; at most ", kMostDimensions, " are allowed");
  std::int64_t elements = 1;
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    const auto size = cursor.number<std::uint64_t>(what);
    if (size > std::uint64_t(INT64_MAX) || size == 0 ||
        __builtin_mul_overflow(elements, static_cast<std::int64_t>(size), &elements))
      cursor.fail(what, ": dimension ", d, " is ", size,
                  ": dimensions must be at least 1 and their product below 2^63");
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  const auto number = cursor.number<std::uint32_t>(what);
  const GgmlTypeInfo* info = find_ggml_type(number);
  if (info == nullptr)
    cursor.fail(what, ": element type ", number, " is unknown; known types are ", join(ggml_type_names()));
  tensor.type = info->type;
  const std::int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % info->block_elements != 0)
    cursor.fail(what, ": shape ", shape_text(tensor.shape), " of ", info->name, ": rows must be whole blocks of ",
                info->block_elements, " elements");
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / info->block_elements, static_cast<std::int64_t>(info->block_bytes), &bytes))
    cursor.fail(what, ": shape ", shape_text(tensor.shape), " of ", info->name, " needs 2^63 bytes or more");
  tensor.begin = cursor.number<std::uint64_t>(what);
  if (__builtin_add_overflow(tensor.begin, static_cast<std::uint64_t>(bytes), &tensor.end))
    cursor.fail(what, ": offset ", tensor.begin, " plus ", bytes, " bytes overflows");
  return tensor;
}

void check_places(const Cursor& cursor, const GgufHeader& header, std::uint64_t data_bytes) {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : header.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  const GgufTensor* before = nullptr;
  for (const GgufTensor* tensor : order) {
    if (tensor->begin % header.alignment != 0)
      cursor.fail("tensor '", tensor->name, "': offset ", tensor->begin, " is not a multiple of the alignment ",
                  header.alignment);
    if (tensor->end > data_bytes)
      cursor.fail("tensor '", tensor->name, "': shape ", shape_text(tensor->shape), " of ",
                  ggml_type_info(tensor->type).name, " takes bytes ", tensor->begin, " to ", tensor->end,
                  " of the data, but the file has ", data_bytes,
                  " bytes of data: it is truncated or was not copied completely");
    if (before != nullptr && tensor->begin < before->end)
      cursor.fail("tensor '", tensor->name, "' begins at byte ", tensor->begin, " of the data, but tensor '",
                  before->name, "' ends at ", before->end, ": tensors must not overlap");
    before = tensor;
  }
}

std::uint64_t alignment_of(const Cursor& cursor, const GgufHeader& header) {
  for (const auto& [key, value] : header.metadata) {
    if (key != "general.alignment") continue;
    if (value.type != GgufType::u32)
      cursor.fail("general.alignment has type ", gguf_type_name(value.type), ", expected uint32");
    std::uint32_t alignment = 0;
    std::memcpy(&alignment, value.bytes.data(), sizeof alignment);
    if (!std::has_single_bit(alignment) || alignment > kMostAlignment)
      cursor.fail("general.alignment is ", alignment, "; it must be a power of two, at most ", kMostAlignment);
    return alignment;
  }
  return 32;
}

std::uint32_t read_version(Cursor& cursor) {
  const auto version = cursor.number<std::uint32_t>(What{"the file's", "version"});
  if (version == 2 || version == 3) return version;
  const std::uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= 3)
    cursor.fail(
        "this is a big-endian GGUF file, which is not supported; convert it with gguf-py's gguf_convert_endian.py");
  cursor.fail("GGUF version ", version, " is not supported; supported are 2 and 3");
}

std::uint64_t read_count(Cursor& cursor, const char* what, std::uint64_t least) {
  const auto count = cursor.number<std::uint64_t>(What{"the number of", what});
  if (count > kMostEntries || count > cursor.left() / least)
    cursor.fail("claims ", count, " ", what, "; at most ", std::min(kMostEntries, cursor.left() / least),
                " fit into the bytes that follow: the file is truncated or damaged");
  return count;
}

}  // namespace

const char* gguf_type_name(GgufType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::int64_t GgufTensor::elements() const {
  std::int64_t product = 1;
  for (std::int64_t n : shape) product *= n;
  return product;
}

GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& path) {
  Cursor cursor(file, path);
  if (file.size() < 4 || std::memcmp(file.data(), "GGUF", 4) != 0)
    cursor.fail("not a GGUF file: it does not begin with the letters GGUF");
  cursor.take(4, What{"the file's", "magic"});
  GgufHeader header;
  header.version = read_version(cursor);
  constexpr std::uint64_t least_entry = 8 + 1 + 4 + 1, least_tensor = 8 + 1 + 4 + 4 + 8;
  const std::uint64_t tensors = read_count(cursor, "tensors", least_tensor);
  const std::uint64_t entries = read_count(cursor, "metadata entries", least_entry);

  std::unordered_set<std::string_view> seen;  // keys so far, as views into the file
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::string_view key = cursor.name(What{"the key of metadata entry", {}, i});
    if (key.empty()) cursor.fail("metadata entry ", i, " has no key");
    if (!seen.insert(key).second) cursor.fail("the metadata key '", key, "' appears twice");
    const GgufValue value = read_value(cursor, What{"the value of", key});
    header.metadata.emplace_back(key, value);
  }
  header.alignment = alignment_of(cursor, header);
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    GgufTensor tensor = read_tensor(cursor, i);
    if (!names.insert(tensor.name).second) cursor.fail("two tensors are named '", tensor.name, "'");
    header.tensors.push_back(std::move(tensor));
  }
  header.data_begin = (cursor.position() + header.alignment - 1) / header.alignment * header.alignment;
  check_places(cursor, header, file.size() > header.data_begin ? file.size() - header.data_begin : 0);
  return header;
}

}  // namespace tessera::format
