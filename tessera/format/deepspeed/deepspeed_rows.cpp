#include <tessera/format/deepspeed/deepspeed_rows.h>

#include <tessera/base/half.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::format::deepspeed {

void Row::add(const std::shared_ptr<StateFile>& file, const TorchTensor& part) {
  const auto size = static_cast<std::uint64_t>(part.shape[0]);
  if (size > 0) parts_.push_back({elements_, file, &part});
  elements_ += size;
}

void Row::cut(std::uint64_t begin, std::uint64_t end, std::vector<Piece>& pieces) const {
  if (begin == end) return;
  const auto is_before = [](std::uint64_t at, const Part& part) { return at < part.begin; };
  const auto behind = std::upper_bound(parts_.begin(), parts_.end(), begin, is_before);
  for (auto part = std::prev(behind); part != parts_.end() && part->begin < end; ++part) {
    const TorchTensor& tensor = *part->tensor;
    const std::uint64_t size = dtype_size(tensor.dtype), length = static_cast<std::uint64_t>(tensor.shape[0]);
    const std::uint64_t from = std::max(begin, part->begin) - part->begin, to = std::min(end - part->begin, length);
    pieces.push_back({part->file, tensor.storage, tensor.begin + from * size, tensor.begin + to * size});
  }
}

std::span<const std::byte> joined(const std::vector<Piece>& pieces, const Buffer& buffer) {
  if (pieces.size() == 1) return pieces[0].file->bytes(pieces[0].storage, pieces[0].begin, pieces[0].end);
  std::uint64_t size = 0;
  for (const Piece& piece : pieces) size += piece.end - piece.begin;
  buffer->clear();
  buffer->reserve(size);
  for (const Piece& piece : pieces) {
    const auto bytes = piece.file->bytes(piece.storage, piece.begin, piece.end);
    buffer->insert(buffer->end(), bytes.begin(), bytes.end());
  }
  return *buffer;
}

std::span<const std::byte> widened(std::span<const std::byte> bytes, DType dtype, const Buffer& buffer) {
  std::vector<std::byte> out(bytes.size() * 2);
  for (std::size_t i = 0; i * 2 < bytes.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * 2, 2);
    const float value = dtype == DType::bf16 ? from_bf16(bits) : from_f16(bits);
    std::memcpy(&out[i * 4], &value, 4);
  }
  *buffer = std::move(out);
  return *buffer;
}

}  // namespace tessera::format::deepspeed
