#pragma once
/// \file
/// format/safetensors/: safetensors (https://github.com/huggingface/safetensors, README
/// "Format"): u64 little-endian header length, JSON header, then the tensors' bytes, tiling the rest without hole or
/// overlap.

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

/// Types of elements that the format has and that are read here.
enum class DType { boolean, u8, i8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };
std::size_t dtype_size(DType dtype);  ///< bytes per element
const char* dtype_name(DType dtype);  ///< "F32", the format's own words
std::optional<DType> parse_dtype(
    std::string_view name);  ///< nullopt: a word of the format that we do not read, or none at all

/// What a file's header says of one tensor.
struct TensorInfo {
  std::string name;                  ///< unique in its file
  DType dtype = DType::f32;          ///< type of its elements
  std::vector<std::int64_t> shape;   ///< row-major; {}: a scalar
  std::uint64_t begin = 0, end = 0;  ///< bytes, relative to the data section
};

/// Bytes that a header may have: the reference reader's limit.
inline constexpr std::uint64_t kSafetensorsMaxHeader = 100'000'000;

/// What the header of a safetensors file says.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              ///< in file order
  std::map<std::string, std::string> metadata;  ///< __metadata__; empty: it has none
  std::uint64_t data_begin = 0;                 ///< offset of the data section in the file
};

/// Parses and checks the header of a file whose bytes are `file` (its data section is not touched): length, JSON,
/// dtypes, shapes (their products must fit int64), offsets (they tile the data section exactly). Throws InputError
/// naming `path`, the tensor, the rule and the numbers.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& path);
/// The same from the beginning of a file of `file_size` bytes (as much of it as the header takes, or more).
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> front, std::uint64_t file_size,
                                           const std::string& path);
/// Bytes that the length and the header of a file take, from its first 8 bytes. Throws InputError as
/// parse_safetensors_header.
std::uint64_t safetensors_front_bytes(std::span<const std::byte> front, std::uint64_t file_size,
                                      const std::string& path);

/// A file opened for reading by mmap. Everything is checked against the real file size before anything is allocated or
/// touched; a violation throws InputError naming the file, the tensor, the rule and the numbers. Const members may be
/// called from several threads.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);                          ///< maps the file and checks its header
  const std::string& path() const { return mapping_.path(); }                 ///< as given to the constructor
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }  ///< in file order
  /// The header's __metadata__; empty: it has none.
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  std::uint64_t data_begin() const { return header_.data_begin; }    ///< file offset of the data section
  const TensorInfo* find(const std::string& name) const;             ///< nullptr: none
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;  ///< valid while this object lives; any alignment

 private:
  MappedFile mapping_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// A tensor of a file that is about to be written.
struct TensorSpec {
  std::string name;                 ///< unique in its file
  DType dtype = DType::f32;         ///< type of its elements
  std::vector<std::int64_t> shape;  ///< row-major; {}: a scalar
};

/// What a file begins with: the length of the header, the header and its padding with spaces, so that the tensors'
/// bytes, which follow without gaps in the order given, begin at a multiple of `alignment` (a power of two, at least
/// 8). A writer so knows the place of every byte before it has one. Throws Error on repeated names, on one called
/// __metadata__, on negative sizes, on more bytes than 2^63 and on a header beyond the format's 100 MB.
std::string safetensors_front(std::span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata,
                              std::size_t alignment);
/// Bytes of a tensor. Throws Error on a negative size and on 2^63 bytes or more.
std::uint64_t byte_size(const TensorSpec& tensor);

/// What to write: shape and dtype now, bytes when asked (called once per tensor, in file order; the span must stay
/// valid until the next call). Their number must be what shape and dtype say.
struct TensorSource {
  std::string name;                                   ///< unique in its file
  DType dtype;                                        ///< type of its elements
  std::vector<std::int64_t> shape;                    ///< row-major; {}: a scalar
  std::function<std::span<const std::byte>()> bytes;  ///< as many bytes as dtype and shape say
};

/// Puts tensors into the order in which write_safetensors asks for their bytes: dtype in the reference writer's order,
/// then name.
void sort_for_writing(std::vector<TensorSource>& tensors);

/// Writes atomically (temporary file, fsync, rename), tensors ordered as the reference writer does (dtype in its order,
/// descending, then name), header padded with spaces to 8 bytes. Returns size and checksums of the bytes written, taken
/// before they went to the disk. Throws Error on I/O failure or on a source that breaks its contract.
Digest write_safetensors(const std::string& path, std::vector<TensorSource> tensors,
                         const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace tessera::format
