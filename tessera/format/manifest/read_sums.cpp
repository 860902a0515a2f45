#include <tessera/format/manifest/read_sums.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/manifest/crc32c.h>

namespace tessera::format {
namespace {

std::uint32_t crc_of_text(const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  return crc32c(std::as_bytes(std::span(text)));
}

/// The encoding of told(): 32-bit numbers in native byte order, which is the same on all machines of a job.
class Words {
 public:
  explicit Words(std::string_view text = {}) : text_(text) {}
  void put(std::uint64_t value) {
    TESSERA_CHECK(value <= std::numeric_limits<std::uint32_t>::max(), value, " is not a 32-bit number");
    const auto word = static_cast<std::uint32_t>(value);
    text_.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  std::uint32_t next() {
    std::uint32_t word = 0;
    TESSERA_CHECK(text_.size() - at_ >= sizeof word, "a process's reading report ends at byte ", text_.size());
    std::memcpy(&word, text_.data() + at_, sizeof word);
    at_ += sizeof word;
    return word;
  }
  bool ended() const { return at_ == text_.size(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::size_t at_ = 0;
};

/// Sorts the pieces, removes repetitions and overlaps, joins adjacent ones; damaged if two pieces of the same range
/// differ.
ChunkSums put_together(std::vector<PieceSum> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const PieceSum& a, const PieceSum& b) {
    return std::tuple(a.begin, b.end, a.crc) <
           std::tuple(b.begin, a.end, b.crc);  // among pieces with the same start, the longest comes first
  });
  ChunkSums result;
  const PieceSum* before = nullptr;
  for (const PieceSum& piece : pieces) {
    const bool again = before != nullptr && before->begin == piece.begin && before->end == piece.end;
    if (again && before->crc != piece.crc) result.state = ChunkSums::State::damaged;
    before = &piece;
    if (result.pieces.empty() || piece.begin > result.pieces.back().end)
      result.pieces.push_back(piece);
    else if (piece.begin == result.pieces.back().end)
      result.pieces.back() = {result.pieces.back().begin, piece.end,
                              crc32c_joined(result.pieces.back().crc, piece.crc, piece.end - piece.begin)};
  }
  return result;
}

}  // namespace

ReadSums::ReadSums(const std::string& folder, Manifest manifest)
    : manifest_(std::move(manifest)), manifest_crc_(crc_of_text(manifest_)) {
  std::size_t chunks = 0;
  for (const ManifestFile& file : manifest_.files) {
    file_at_.emplace(path_join(folder, file.name), first_chunk_.size());
    first_chunk_.push_back(chunks);
    chunks += file.digest.chunks.size();
  }
  first_chunk_.push_back(chunks);
  chunks_.resize(chunks);
}

std::optional<std::size_t> ReadSums::file_at(const std::string& path) const {
  const auto found = file_at_.find(path);
  return found == file_at_.end() ? std::nullopt : std::optional(found->second);
}

void ReadSums::add(std::size_t file, std::span<const PieceSum> pieces) {
  const std::lock_guard lock(mutex_);
  for (const PieceSum& piece : pieces) note(file, piece);
}

void ReadSums::note(std::size_t file, const PieceSum& piece) {
  const Digest& digest = manifest_.files.at(file).digest;
  if (piece.begin >= piece.end || piece.end > digest.size) return;  // a file that has grown is detected by its size
  const std::uint64_t number = piece.begin / digest.chunk_bytes;
  TESSERA_CHECK((piece.end - 1) / digest.chunk_bytes == number, "bytes [", piece.begin, ", ", piece.end,
                ") are not of one chunk");
  chunks_[index_of(file, number)].pieces.push_back(piece);
}

ChunkSums ReadSums::chunk(std::size_t file, std::size_t number) const {
  const Digest& digest = manifest_.files.at(file).digest;
  ChunkSums known;
  {
    const std::lock_guard lock(mutex_);
    known = chunks_.at(index_of(file, number));
  }
  if (known.state != ChunkSums::State::open) return known;
  ChunkSums sums = put_together(std::move(known.pieces));
  const std::uint64_t begin = number * digest.chunk_bytes, end = std::min(begin + digest.chunk_bytes, digest.size);
  const bool all = sums.pieces.size() == 1 && sums.pieces[0].begin == begin && sums.pieces[0].end == end;
  if (all && sums.state == ChunkSums::State::open)
    sums.state = sums.pieces[0].crc == digest.chunks[number] ? ChunkSums::State::whole : ChunkSums::State::damaged;
  if (sums.state != ChunkSums::State::open) sums.pieces.clear();
  return sums;
}

// Format: the manifest's checksum; runs of chunks with the same state (state, length); then each piece of the open ones
// (chunk, start within it, bytes, checksum).
std::string ReadSums::told() const {
  std::vector<std::pair<ChunkSums::State, std::uint64_t>> runs;
  Words pieces;
  for (std::size_t file = 0; file < manifest_.files.size(); ++file) {
    const Digest& digest = manifest_.files[file].digest;
    for (std::size_t number = 0; number < digest.chunks.size(); ++number) {
      const ChunkSums sums = chunk(file, number);
      if (runs.empty() || runs.back().first != sums.state) runs.emplace_back(sums.state, 0);
      ++runs.back().second;
      for (const PieceSum& piece : sums.pieces) {
        pieces.put(index_of(file, number));
        pieces.put(piece.begin - number * digest.chunk_bytes);
        pieces.put(piece.end - piece.begin);
        pieces.put(piece.crc);
      }
    }
  }
  Words words;
  words.put(manifest_crc_);
  words.put(runs.size());
  for (const auto& [state, count] : runs) {
    words.put(static_cast<std::uint64_t>(state));
    words.put(count);
  }
  return words.text() + pieces.text();
}

void ReadSums::hear_all(std::span<const std::string> told) {
  const std::lock_guard lock(mutex_);
  for (ChunkSums& sums : chunks_) sums = {};
  for (const std::string& text : told) hear(text);
}

void ReadSums::hear(std::string_view told) {
  if (told.empty()) return;
  Words words(told);
  if (words.next() != manifest_crc_) return;
  std::size_t index = 0;
  for (std::uint32_t runs = words.next(); runs > 0; --runs) {
    const auto state = static_cast<ChunkSums::State>(words.next());
    const std::uint32_t count = words.next();
    TESSERA_CHECK(state <= ChunkSums::State::damaged && count <= chunks_.size() - index,
                  "a process's report has more chunks than the manifest");
    for (const std::size_t end = index + count; index < end; ++index)
      // a chunk that is damaged for one process is damaged for all
      chunks_[index].state = std::max(chunks_[index].state, state);
  }
  while (!words.ended()) {
    index = words.next();
    TESSERA_CHECK(index < chunks_.size(), "a process's report names chunk ", index, " of ", chunks_.size());
    const auto next_file = std::upper_bound(first_chunk_.begin(), first_chunk_.end(), index);
    const auto file = static_cast<std::size_t>(next_file - first_chunk_.begin()) - 1;
    const std::uint64_t begin = (index - first_chunk_[file]) * manifest_.files[file].digest.chunk_bytes + words.next();
    const std::uint64_t end = begin + words.next();
    note(file, {begin, end, words.next()});
  }
}

void ReadRun::take(std::span<const std::byte> bytes) {
  if (sums_ == nullptr) return;
  const std::uint64_t chunk_bytes = sums_->manifest().files[file_].digest.chunk_bytes;
  while (!bytes.empty()) {
    if (pieces_.empty() || at_ % chunk_bytes == 0) pieces_.push_back({at_, at_, 0});
    const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), chunk_bytes - at_ % chunk_bytes));
    pieces_.back().crc = crc32c(part, pieces_.back().crc);
    at_ += part.size();
    pieces_.back().end = at_;
    bytes = bytes.subspan(part.size());
  }
}

void ReadRun::end() {
  if (sums_ != nullptr) sums_->add(file_, pieces_);
  pieces_.clear();
}

}  // namespace tessera::format
