#pragma once
/// \file
/// format/: file formats, without tensors. This header: safetensors (https://github.com/huggingface/safetensors, README
/// "Format"): u64 little-endian header length, JSON header, then the tensors' bytes, tiling the rest without hole or overlap.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <tessera/base/file.h>

namespace tessera::format {

enum class DType { boolean, u8, i8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };
std::size_t dtype_size(DType dtype);          ///< bytes per element
const char* dtype_name(DType dtype);          ///< "F32", the format's own words

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;           ///< bytes, relative to the data section
};

/// A file opened for reading by mmap. Everything is checked against the real file size before anything is allocated or
/// touched; a violation throws InputError naming the file, the tensor, the rule and the numbers.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::string& path() const { return mapping_.path(); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }   ///< in file order
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(const std::string& name) const;
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;     ///< valid while this object lives

 private:
  MappedFile mapping_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  std::size_t data_begin_ = 0;
};

/// What to write: shape and dtype now, bytes when asked (called once per tensor, in file order).
struct TensorSource {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::function<std::span<const std::byte>()> bytes;
};

/// Writes atomically (temporary file, fsync, rename), tensors ordered as the reference writer does (alignment of dtype
/// descending, then name), header padded with spaces to 8 bytes.
void write_safetensors(const std::string& path, std::vector<TensorSource> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace tessera::format
