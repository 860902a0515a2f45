#pragma once
/// \file
/// format/safetensors/: the safetensors format (https://github.com/huggingface/safetensors, README "Format"): u64
/// little-endian header length, JSON header, then the tensors' bytes, which tile the rest without gaps or overlaps.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/format/manifest/crc32c.h>

namespace tessera::format {

/// The format's element types that are supported.
enum class DType { boolean, u8, i8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };
std::size_t dtype_size(DType dtype);                      ///< bytes per element
const char* dtype_name(DType dtype);                      ///< "F32", the name in the format
std::optional<DType> parse_dtype(std::string_view name);  ///< nullopt: an unsupported or unknown name

/// One tensor, as described by a file's header.
struct TensorInfo {
  std::string name;                  ///< unique in its file
  DType dtype = DType::f32;          ///< type of its elements
  std::vector<std::int64_t> shape;   ///< row-major; {}: a scalar
  std::uint64_t begin = 0, end = 0;  ///< bytes, relative to the data section
};

/// Maximum size of a header in bytes: the reference reader's limit.
inline constexpr std::uint64_t kSafetensorsMaxHeader = 100'000'000;

/// The contents of a safetensors header.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              ///< in file order
  std::map<std::string, std::string> metadata;  ///< __metadata__; empty: absent
  std::uint64_t data_begin = 0;                 ///< offset of the data section in the file
};

/// Parses and checks the header of a file with the bytes `file` (its data section is not accessed): length, JSON,
/// dtypes, shapes (their products must fit int64), offsets (they must tile the data section exactly). Throws InputError
/// naming `path`, the tensor, the rule and the numbers.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& path);
/// The same from the start of a file of `file_size` bytes; `front` must contain at least the header.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> front, std::uint64_t file_size,
                                           const std::string& path);
/// Size of the length field plus the header, from a file's first 8 bytes. Throws InputError like
/// parse_safetensors_header().
std::uint64_t safetensors_front_bytes(std::span<const std::byte> front, std::uint64_t file_size,
                                      const std::string& path);

/// A file opened for reading by mmap. Everything is checked against the real file size before anything is allocated or
/// accessed; a violation throws InputError naming the file, the tensor, the rule and the numbers. Const members may be
/// called from several threads.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);                          ///< maps the file and checks its header
  const std::string& path() const { return mapping_.path(); }                 ///< the path passed to the constructor
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }  ///< in file order
  /// Returns the header's __metadata__; empty if it is absent.
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  std::uint64_t data_begin() const { return header_.data_begin; }    ///< offset of the data section in the file
  const TensorInfo* find(const std::string& name) const;             ///< nullptr: not found
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;  ///< valid while this object lives; any alignment

 private:
  MappedFile mapping_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// A tensor of a file to be written.
struct TensorSpec {
  std::string name;                 ///< unique in its file
  DType dtype = DType::f32;         ///< type of its elements
  std::vector<std::int64_t> shape;  ///< row-major; {}: a scalar
};

/// The beginning of a file: header length, header, and padding with spaces, so that the tensors' bytes, which follow
/// without gaps in the given order, begin at a multiple of `alignment` (a power of two, at least 8). So a writer knows
/// the position of every byte in advance. Throws Error for duplicate names, the name __metadata__, negative sizes, more
/// than 2^63 bytes, and a header beyond the format's 100 MB.
std::string safetensors_front(std::span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata,
                              std::size_t alignment);
/// Size of a tensor in bytes. Throws Error for a negative dimension and for 2^63 bytes or more.
std::uint64_t byte_size(const TensorSpec& tensor);

/// A tensor to write: its shape and dtype are given, its bytes are requested later (once per tensor, in file order; the
/// span must stay valid until the next call). Their number must match shape and dtype.
struct TensorSource {
  std::string name;                                   ///< unique in its file
  DType dtype;                                        ///< type of its elements
  std::vector<std::int64_t> shape;                    ///< row-major; {}: a scalar
  std::function<std::span<const std::byte>()> bytes;  ///< as many bytes as shape and dtype require
};

/// Sorts tensors into the order in which write_safetensors requests their bytes: by dtype in the reference writer's
/// order, then by name.
void sort_for_writing(std::vector<TensorSource>& tensors);

/// Writes atomically (temporary file, fsync, rename), with the tensors ordered as by the reference writer (dtype in its
/// order, descending, then name) and the header padded with spaces to 8 bytes. Returns size and checksums of the bytes,
/// computed before they were written to disk. Throws Error on I/O failure or when a source violates its contract.
Digest write_safetensors(const std::string& path, std::vector<TensorSource> tensors,
                         const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace tessera::format
