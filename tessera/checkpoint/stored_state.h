#pragma once
/// \file
/// Reads a checkpoint's optimizer tensors by range: each rank reads only the part that it holds, regardless of which
/// ranks wrote the checkpoint.

#include <ATen/core/Tensor.h>

#include <tessera/checkpoint/file_reader.h>
#include <tessera/format/manifest/state_folder.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::checkpoint {

/// Const members may be called from several threads.
class StoredState : public format::StateFolder {
 public:
  explicit StoredState(const std::string& folder, std::shared_ptr<format::ReadSums> sums = {},
                       const std::string& stem = "optimizer");

  /// Fills `piece` (contiguous, any device and dtype) with elements [begin, begin + piece.numel()) of the flattened
  /// whole tensor, converted. Reads only those bytes of the files, by pread, so that nothing else becomes resident.
  /// Throws Error for a missing tensor or missing elements and when reading fails, InputError if a file has become
  /// shorter.
  void read(const std::string& name, std::int64_t begin, const at::Tensor& piece) const;
  /// Same for the elements of a region, as many as `piece` has.
  void read(const std::string& name, const layout::Region& region, const at::Tensor& piece) const;

 private:
  struct OpenFiles;
  std::shared_ptr<OpenFiles> open_;
};

}  // namespace tessera::checkpoint
