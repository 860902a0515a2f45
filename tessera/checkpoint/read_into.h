#pragma once
/// \file
/// Weights from a Hugging Face folder straight into tensors that exist already.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/checkpoint/file_reader.h>
#include <tessera/format/safetensors/safetensors_index.h>

namespace tessera::checkpoint {

/// The weights of a model folder, headers checked. Throws InputError when it holds none; a pickled pytorch_model.bin is
/// named and not read.
format::SafetensorsFolder open_hf_weights(const std::string& folder);

/// Reads pieces of stored tensors, each by itself: what a rank that holds a part of a parameter needs. By pread, so
/// that what is not asked for never becomes resident, large ones with as many threads as LibTorch uses. Const members
/// may be called from several threads.
class PieceReader {
 public:
  explicit PieceReader(const format::SafetensorsFile& file, std::shared_ptr<format::ReadSums> sums = {})
      : PieceReader(file.path(), file.data_begin(), std::move(sums)) {}  ///< reads the header's checked file again
  /// A safetensors file whose header was checked. Throws Error when it cannot be opened again.
  PieceReader(const std::string& path, std::uint64_t data_begin, std::shared_ptr<format::ReadSums> sums = {});

  /// Fills `piece` (contiguous, any device and dtype) with elements [begin, begin + piece.numel()) of the flattened
  /// tensor, which is one of the file's, converted. Throws Error when it has fewer elements or reading fails,
  /// InputError when the file has become shorter.
  void read(const format::TensorInfo& tensor, std::int64_t begin, const at::Tensor& piece) const;

 private:
  std::shared_ptr<const FileReader> file_;
  std::uint64_t data_begin_;
};

/// One tensor of a folder and where it goes: a contiguous CPU tensor of the same shape, or a view that is contiguous.
struct Placement {
  const format::SafetensorsFolder::Stored* stored;  ///< one of the folder's tensors
  at::Tensor target;                                ///< is filled in place, converted to its type
};

/// Reads them all, in pieces of 4 MiB on as many threads as LibTorch uses. Where the file's type is the target's, bytes
/// go from the file to their place by pread, without a copy in between (and without the page faults of a mapping); else
/// they are converted on the way. A file that ends early throws InputError, a failing read Error.
void read_into(const format::SafetensorsFolder& folder, const std::vector<Placement>& placements,
               const std::shared_ptr<format::ReadSums>& sums = {});

}  // namespace tessera::checkpoint
