#pragma once
/// \file
/// format/gguf/: reads llama.cpp's files and converts them to Hugging Face folders.
///
/// GGUF, the model files of llama.cpp (ggml/docs/gguf.md). Little-endian: "GGUF", u32 version (2 or 3), u64 tensors,
/// u64 metadata entries; each entry: key, u32 type, value; each tensor: name, u32 dimensions, u64 sizes (innermost
/// first), u32 element type, u64 offset; then, from the next multiple of `general.alignment` (32 when absent), the
/// tensors' data. A string is u64 length and UTF-8 bytes; an array is u32 type, u64 count and its elements, which may
/// be arrays.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/format/gguf/ggml_types.h>

namespace tessera::format {

enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
const char* gguf_type_name(GgufType type);  ///< "uint32", "string", ...

/// A metadata value: a view into the file; arrays are not copied until requested.
struct GgufValue {
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;   ///< element type of an array
  std::uint64_t count = 1;           ///< number of elements of an array
  std::span<const std::byte> bytes;  ///< the value, or an array's elements, as stored; for a string its characters
};

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::f32;
  std::vector<std::int64_t> shape;   ///< row-major, as elsewhere; the file has the reverse order
  std::uint64_t begin = 0, end = 0;  ///< bytes, relative to the data section
  std::int64_t elements() const;     ///< product of the shape (checked to fit int64)
};

struct GgufHeader {
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata;  ///< in file order; values point into the parsed bytes
  std::vector<GgufTensor> tensors;                          ///< in file order
  std::uint64_t data_begin = 0;                             ///< offset of the data section in the file
};

/// Parses and checks everything that precedes the data section. Every count, length and offset is checked against the
/// available bytes before memory is allocated: allocations are bounded by a small multiple of the file's size. Checks
/// the magic, version, UTF-8 of all strings, uniqueness of keys and tensor names, booleans (0 or 1), array depth <= 8,
/// alignment (a power of two), at most 4 dimensions, rows that are whole blocks, and offsets that are aligned, inside
/// the file and do not overlap. Throws InputError naming `path`, the key or tensor, the rule and the numbers.
GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& path);

/// A file opened by mmap. Immutable: any number of threads may read.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  /// Reads a file already in memory: `bytes` must outlive this object; `name` is for messages.
  GgufFile(std::span<const std::byte> bytes, std::string name);

  const std::string& path() const { return path_; }
  std::uint64_t file_bytes() const { return bytes_.size(); }
  const GgufHeader& header() const { return header_; }
  const std::vector<GgufTensor>& tensors() const { return header_.tensors; }
  const GgufTensor* find(const std::string& name) const;             ///< nullptr: not found
  std::span<const std::byte> bytes(const GgufTensor& tensor) const;  ///< valid while this object lives

  bool has(std::string_view key) const { return value(key) != nullptr; }
  const GgufValue* value(std::string_view key) const;  ///< nullptr: not found

  /// Typed metadata. nullopt: no such key. A different type throws InputError naming key and types. integer() accepts
  /// any integer type (a u64 above 2^63 - 1 throws), real() any number, strings() an array of strings.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;  ///< for an f32, the shortest decimal that rounds to it
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;  ///< views into the mapping
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;

 private:
  GgufFile(std::span<const std::byte> bytes, std::string name, MappedFile mapping);
  [[noreturn]] void wrong_type(std::string_view key, const GgufValue& value, const char* expected) const;

  MappedFile mapping_;  // empty if the bytes belong to the caller
  std::string path_;
  std::span<const std::byte> bytes_;
  GgufHeader header_;
  std::unordered_map<std::string_view, std::size_t> keys_, names_;  // views into header_
};

}  // namespace tessera::format
