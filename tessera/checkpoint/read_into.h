#pragma once
/// \file
/// Reads weights from a Hugging Face folder directly into existing tensors.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/checkpoint/file_reader.h>
#include <tessera/format/safetensors/safetensors_index.h>

namespace tessera::checkpoint {

/// Opens the weights of a model folder and checks their headers. Throws InputError if it has none; a pickled
/// pytorch_model.bin is reported but not read.
format::SafetensorsFolder open_hf_weights(const std::string& folder);

/// Reads pieces of stored tensors individually, for ranks that hold parts of parameters. Uses pread, so that pieces
/// that are not requested never become resident, and for large ones as many threads as LibTorch. Const members may be
/// called from several threads.
class PieceReader {
 public:
  explicit PieceReader(const format::SafetensorsFile& file, std::shared_ptr<format::ReadSums> sums = {})
      : PieceReader(file.path(), file.data_begin(), std::move(sums)) {}  ///< reopens a file with a checked header
  /// A safetensors file whose header was checked. Throws Error if it cannot be opened again.
  PieceReader(const std::string& path, std::uint64_t data_begin, std::shared_ptr<format::ReadSums> sums = {});

  /// Fills `piece` (contiguous, any device and dtype) with elements [begin, begin + piece.numel()) of the flattened
  /// tensor of the file, converted. Throws Error if it has fewer elements or reading fails, InputError if the file has
  /// become shorter.
  void read(const format::TensorInfo& tensor, std::int64_t begin, const at::Tensor& piece) const;

 private:
  std::shared_ptr<const FileReader> file_;
  std::uint64_t data_begin_;
};

/// A tensor of a folder and its destination: a contiguous CPU tensor of the same shape, or a contiguous view.
struct Placement {
  const format::SafetensorsFolder::Stored* stored;  ///< one of the folder's tensors
  at::Tensor target;                                ///< filled in place, converted to its type
};

/// Reads all placements, in pieces of 4 MiB on as many threads as LibTorch uses. If the types match, bytes are read by
/// pread directly into their destination, without an intermediate copy (and without the page faults of a mapping);
/// otherwise they are converted. Throws InputError for a file that ends early, Error if a read fails.
void read_into(const format::SafetensorsFolder& folder, const std::vector<Placement>& placements,
               const std::shared_ptr<format::ReadSums>& sums = {});

}  // namespace tessera::checkpoint
