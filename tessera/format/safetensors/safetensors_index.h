#pragma once
/// \file
/// A model's weights as Hugging Face stores them: one NAME.safetensors, or shards that NAME.safetensors.index.json
/// lists:
/// {"metadata": {"total_size": bytes}, "weight_map": {tensor: file name, ...}} (transformers, modeling_utils.py).

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

/// What an index says; no shard has been opened.
struct SafetensorsIndex {
  /// Where one tensor is.
  struct Entry {
    std::string tensor;    ///< the key in weight_map
    std::size_t file = 0;  ///< position in `files`
  };
  std::vector<std::string> files;           ///< plain names inside the index's folder, each once, sorted
  std::vector<Entry> tensors;               ///< in the index's order; names differ
  std::optional<std::uint64_t> total_size;  ///< bytes of all tensors, as the writer counted them
};

/// Parses the text of an index; `path` is for messages. File names must be plain (no '/', "..", NUL) and end in
/// ".safetensors"; there must be at least one tensor. Throws InputError naming position, tensor and rule.
SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& path);

/// All weights of a folder, opened by mmap; every header is checked before the constructor returns. Immutable: any
/// number of threads may read.
class SafetensorsFolder {
 public:
  /// A tensor and the file that holds it.
  struct Stored {
    TensorInfo info;       ///< begin and end count from the data section of its own file
    std::size_t file = 0;  ///< position in files()
  };

  /// `path`: a folder (its STEM.safetensors, else its STEM.safetensors.index.json), one .safetensors file, or one
  /// .index.json. Missing shards and tensors that are not in their shard are listed all at once; a tensor that two
  /// shards hold is an error; one that the index does not list is left aside with a warning. Throws InputError.
  explicit SafetensorsFolder(const std::string& path, const std::string& stem = "model");

  const std::vector<SafetensorsFile>& files() const { return files_; }  ///< opened, one or several
  std::vector<std::string> paths() const;                               ///< paths of files(), in the same order
  const std::vector<Stored>& tensors() const { return tensors_; }       ///< file order, or the index's order
  const Stored* find(const std::string& name) const;                    ///< nullptr: none
  std::span<const std::byte> bytes(const Stored& tensor) const;  ///< valid while this object lives; any alignment
  bool sharded() const { return sharded_; }                      ///< an index lists them; false: one file has all
  std::uint64_t data_bytes() const;                              ///< data bytes of all tensors()

 private:
  void open_single(const std::string& path);
  void open_sharded(const std::string& index_path);

  std::vector<SafetensorsFile> files_;
  std::vector<Stored> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  bool sharded_ = false;
};

}  // namespace tessera::format
