#pragma once
/// \file
/// A saved state (of an optimizer), however it was divided when it was written: STEM.safetensors with whole tensors, or
/// one file of pieces per rank, listed in STEM.safetensors.index.json (state_index.h). This class locates the data:
/// readers request a range of a whole tensor and need not know how it was cut.

#include <tessera/format/manifest/state_index.h>
#include <tessera/format/safetensors/safetensors.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::format {

/// Const members may be called from several threads. Keeps no file open, so that a folder of thousands of ranks can be
/// read.
class StateFolder {
 public:
  struct File {
    std::string path;
    std::uint64_t data_begin = 0;  ///< offset of the data section
  };
  /// `count` consecutive elements in a file: they start at element `from` of its tensor `info`, and at offset `to` from
  /// the first requested element.
  struct Run {
    const File& file;
    const TensorInfo& info;
    std::int64_t from, to, count;
  };

  /// Reads the index and every file's header, but no tensors. Throws InputError when the folder has neither file; when
  /// a file named by the index is missing, damaged, or differs from the index (naming file, tensor, rule, numbers); and
  /// for tensors of BOOL.
  explicit StateFolder(const std::string& folder, const std::string& stem = "optimizer");

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  ///< whole tensors, sorted by name
  const StoredTensor* find(const std::string& name) const;               ///< nullptr: not found
  const std::vector<File>& files() const { return files_; }
  bool in_pieces() const { return in_pieces_; }  ///< whether it is stored in pieces, with an index
  std::uint64_t bytes() const;                   ///< total size of all tensors

  /// Calls `visit` for the runs that contain the elements of a region of the tensor, each element exactly once. Throws
  /// Error for elements outside the tensor. `tensor` must be one of tensors().
  void for_each_run(const StoredTensor& tensor, const layout::Region& region,
                    const std::function<void(const Run&)>& visit) const;
  void for_each_run(const StoredTensor& tensor, std::int64_t begin, std::int64_t end,
                    const std::function<void(const Run&)>& visit) const {
    for_each_run(tensor, layout::flat_region(tensor.shape, begin, end), visit);
  }

 private:
  /// tensors_[i].pieces[j] is stored_[i][j].
  struct Stored {
    std::size_t file = 0;
    TensorInfo info;
  };
  void open_whole(const std::string& folder, const std::string& stem);
  void open_pieces(const std::string& folder, const std::string& index_path);

  std::vector<StoredTensor> tensors_;
  std::vector<std::vector<Stored>> stored_;
  std::vector<File> files_;
  bool in_pieces_ = false;
};

}  // namespace tessera::format
