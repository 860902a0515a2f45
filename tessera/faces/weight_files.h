#pragma once
/// \file
/// A module's weights as Hugging Face stores them: model.safetensors, or files of a size and their index. Written piece
/// by piece, in the order of the files, so that nothing is kept.

#include <ATen/core/Tensor.h>

#include <tessera/checkpoint/shard_file.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::faces {

/// One rank has one. Its functions throw Error when writing fails.
class WeightFiles {
 public:
  /// Cuts the list before each tensor that would exceed max_bytes; a larger one has a file of its own.
  WeightFiles(std::string folder, const std::vector<format::TensorSpec>& tensors, std::int64_t max_bytes);
  /// Makes the folder; files of former saves go.
  void begin() const;
  /// The next elements of tensors[place].
  void put(std::size_t place, const at::Tensor& piece);
  /// After all of them: model.safetensors.index.json, if there are several files.
  void finish();

 private:
  std::string name(std::size_t i) const;
  void open(std::size_t i);
  void close();

  std::string folder_;
  std::vector<std::vector<format::TensorSpec>> files_;
  std::vector<std::size_t> file_of_;  // by tensor
  std::int64_t total_ = 0;            // bytes
  std::optional<checkpoint::ShardFile> file_;
  std::size_t opened_ = 0;
};

}  // namespace tessera::faces
