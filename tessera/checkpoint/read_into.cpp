#include <tessera/checkpoint/read_into.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/nn/parallel_for.h>

namespace tessera::checkpoint {
namespace {

constexpr std::int64_t piece_bytes = std::int64_t{4} << 20;  // bytes per read of a thread

/// A run of bytes of one tensor.
struct Piece {
  const Placement* placement;
  std::int64_t begin, bytes;  // in the stored tensor
};

/// Reads a piece of a tensor whose stored type differs from the target's.
void convert(const FileReader& file, std::uint64_t offset, const Piece& piece) {
  const auto& [stored, target] = *piece.placement;
  const auto size = static_cast<std::int64_t>(format::dtype_size(stored->info.dtype));
  const at::Tensor values = at::empty({piece.bytes / size}, at::TensorOptions().dtype(scalar_type(stored->info.dtype)));
  file.read(values.mutable_data_ptr(), piece.bytes, offset);
  target.view({-1}).narrow(0, piece.begin / size, piece.bytes / size).copy_(values);
}

}  // namespace

format::SafetensorsFolder open_hf_weights(const std::string& folder) {
  if (!is_directory(folder)) throw InputError(concat(folder, ": no such folder; expected one with ", kWeightsFile));
  const auto has = [&](const char* name) { return path_exists(path_join(folder, name)); };
  if (has(kWeightsFile) || has(kWeightsIndexFile)) return format::SafetensorsFolder(folder);
  const bool pickled = has("pytorch_model.bin") || has("pytorch_model.bin.index.json");
  throw InputError(
      concat(folder, ": contains neither ", kWeightsFile, " nor ", kWeightsIndexFile,
             pickled ? "; its pytorch_model.bin is a pickle, which is never read: save it again as safetensors" : ""));
}

PieceReader::PieceReader(const std::string& path, std::uint64_t data_begin, std::shared_ptr<format::ReadSums> sums)
    : file_(std::make_shared<const FileReader>(path, std::move(sums))), data_begin_(data_begin) {}

void PieceReader::read(const format::TensorInfo& tensor, std::int64_t begin, const at::Tensor& piece) const {
  const at::NoGradGuard no_grad;
  const auto size = static_cast<std::int64_t>(format::dtype_size(tensor.dtype));
  const std::int64_t count = piece.numel();
  TESSERA_CHECK(piece.is_contiguous() && begin >= 0 &&
                    (begin + count) * size <= static_cast<std::int64_t>(tensor.end - tensor.begin),
                tensor.name, ": elements [", begin, ", ", begin + count, ") of ",
                static_cast<std::int64_t>(tensor.end - tensor.begin) / size);
  const auto offset = [&](std::int64_t element) {
    return data_begin_ + tensor.begin + static_cast<std::uint64_t>((begin + element) * size);
  };
  const at::ScalarType type = scalar_type(tensor.dtype);
  if (piece.is_cpu() && piece.scalar_type() == type) {
    const std::int64_t bytes = count * size, parts = (bytes + piece_bytes - 1) / piece_bytes;
    auto* const to = static_cast<std::byte*>(piece.mutable_data_ptr());
    nn::parallel_for(
        0, parts, 1,
        [&](std::int64_t first, std::int64_t last) {  // the kernel copies, and each thread takes its own page faults
          const std::int64_t from = first * piece_bytes;
          file_->read(to + from, std::min(last * piece_bytes, bytes) - from,
                      offset(0) + static_cast<std::uint64_t>(from));
        });
    return;
  }
  constexpr std::int64_t at_once = 1 << 20;  // elements per conversion to another type or device
  const at::Tensor flat = piece.view({-1});
  const at::Tensor stored = at::empty({std::min(count, at_once)}, at::TensorOptions().dtype(type));
  for (std::int64_t done = 0; done < count; done += at_once) {
    const std::int64_t n = std::min(at_once, count - done);
    file_->read(stored.mutable_data_ptr(), n * size, offset(done));
    flat.narrow(0, done, n).copy_(stored.narrow(0, 0, n));
  }
}

void read_into(const format::SafetensorsFolder& folder, const std::vector<Placement>& placements,
               const std::shared_ptr<format::ReadSums>& sums) {
  std::vector<std::unique_ptr<FileReader>> files;
  for (const std::string& path : folder.paths()) files.push_back(std::make_unique<FileReader>(path, sums));
  std::vector<Piece> pieces;
  for (const Placement& p : placements) {
    TESSERA_CHECK(p.target.device().is_cpu() && p.target.is_contiguous() && p.target.sizes() == p.stored->info.shape,
                  p.stored->info.name, " has no destination of its shape");
    const auto bytes = static_cast<std::int64_t>(p.stored->info.end - p.stored->info.begin);
    for (std::int64_t begin = 0; begin < bytes; begin += piece_bytes)
      pieces.push_back({&p, begin, std::min(piece_bytes, bytes - begin)});
  }
  // Threads take the pieces one by one, in file order (an index lists tensors in a different order). For the page cache
  // and the disk that is better than a contiguous share per thread.
  const auto place = [](const Piece& p) {
    const auto& stored = *p.placement->stored;
    return std::pair(stored.file, stored.info.begin + static_cast<std::uint64_t>(p.begin));
  };
  std::sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) { return place(a) < place(b); });
  std::atomic<std::size_t> next = 0;
  nn::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      const Piece& piece = pieces[i];
      const auto& [stored, target] = *piece.placement;
      const FileReader& file = *files[stored->file];
      const std::uint64_t offset = folder.files()[stored->file].data_begin() + place(piece).second;
      if (target.scalar_type() != scalar_type(stored->info.dtype))
        convert(file, offset, piece);
      else
        file.read(static_cast<std::byte*>(target.mutable_data_ptr()) + piece.begin, piece.bytes, offset);
    }
  });
}

}  // namespace tessera::checkpoint
