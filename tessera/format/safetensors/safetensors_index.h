#pragma once
/// \file
/// A model's weights as Hugging Face stores them: one NAME.safetensors, or shards listed in
/// NAME.safetensors.index.json: {"metadata": {"total_size": bytes}, "weight_map": {tensor: file name, ...}}
/// (transformers, modeling_utils.py).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tessera/format/safetensors/safetensors.h>

namespace tessera::format {

/// A parsed index; no shard has been opened.
struct SafetensorsIndex {
  /// One tensor and its file.
  struct Entry {
    std::string tensor;    ///< the key in weight_map
    std::size_t file = 0;  ///< index in `files`
  };
  std::vector<std::string> files;           ///< plain names of files in the index's folder, unique and sorted
  std::vector<Entry> tensors;               ///< in the index's order; unique names
  std::optional<std::uint64_t> total_size;  ///< bytes of all tensors, as counted by the writer
};

/// Parses the text of an index; `path` is used in messages. File names must be plain (no '/', "..", NUL) and end in
/// ".safetensors"; there must be at least one tensor. Throws InputError naming position, tensor and rule.
SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& path);

/// All weights of a folder, opened by mmap; every header is checked before the constructor returns. Immutable: any
/// number of threads may read.
class SafetensorsFolder {
 public:
  /// A tensor and the file that contains it.
  struct Stored {
    TensorInfo info;       ///< begin and end are relative to the data section of its file
    std::size_t file = 0;  ///< index in files()
  };

  /// `path`: a folder (its STEM.safetensors, otherwise its STEM.safetensors.index.json), one .safetensors file, or one
  /// .index.json. All missing shards, and all tensors missing from their shard, are listed in one error; a tensor in
  /// two shards is an error; a tensor not listed in the index is ignored with a warning. Throws InputError.
  explicit SafetensorsFolder(const std::string& path, const std::string& stem = "model");

  const std::vector<SafetensorsFile>& files() const { return files_; }  ///< the opened files, one or more
  std::vector<std::string> paths() const;                               ///< paths of files(), in the same order
  const std::vector<Stored>& tensors() const { return tensors_; }       ///< in file order, or the index's order
  const Stored* find(const std::string& name) const;                    ///< nullptr: not found
  std::span<const std::byte> bytes(const Stored& tensor) const;  ///< valid while this object lives; any alignment
  bool sharded() const { return sharded_; }                      ///< whether an index lists the files; false: one file
  std::uint64_t data_bytes() const;                              ///< total data bytes of tensors()

 private:
  void open_single(const std::string& path);
  void open_sharded(const std::string& index_path);

  std::vector<SafetensorsFile> files_;
  std::vector<Stored> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  bool sharded_ = false;
};

}  // namespace tessera::format
