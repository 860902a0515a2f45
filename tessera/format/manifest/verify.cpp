#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/crc32c.h>
#include <tessera/format/manifest/manifest_names.h>
#include <tessera/format/manifest/regular_file.h>
#include <tessera/format/manifest/verify.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/layout/owners.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

namespace tessera::format {
namespace {

/// Consecutive chunks of a file with the same problem.
struct Range {
  std::uint64_t begin, end;
  std::string why;  ///< "": their bytes differ; otherwise the reason why they could not be read
};

/// The tensors of a safetensors file that overlap [begin, end), from its current header.
std::vector<std::string> tensors_at(const RegularFile& file, const std::string& name, std::uint64_t begin,
                                    std::uint64_t end) {
  std::vector<std::string> names;
  std::vector<std::byte> front(std::min<std::uint64_t>(file.size(), 8));
  try {
    if (!file.read(0, front).empty()) return names;
    const std::uint64_t front_bytes = safetensors_front_bytes(front, file.size(), name);
    if (begin < front_bytes) names.emplace_back("the header");
    front.resize(front_bytes);
    if (!file.read(0, front).empty()) return names;
    const SafetensorsHeader header = parse_safetensors_header(front, file.size(), name);
    for (const TensorInfo& tensor : header.tensors)
      if (header.data_begin + tensor.begin < end && begin < header.data_begin + tensor.end)
        names.push_back(tensor.name);
  } catch (const InputError&) {  // the header itself is damaged
    names = {"the header"};
  }
  return names;
}

Damage damage_of(const RegularFile& file, const std::string& name, const Range& range) {
  Damage damage{name, range.begin, range.end, {}, ""};
  if (!range.why.empty()) {
    damage.text = concat(name, ": bytes ", range.begin, " to ", range.end, " cannot be read: ", range.why);
    return damage;
  }
  damage.text = concat(name, ": bytes ", range.begin, " to ", range.end, " are damaged");
  if (!name.ends_with(".safetensors")) return damage;
  damage.tensors = tensors_at(file, name, range.begin, range.end);
  const std::size_t count = damage.tensors.size(), shown = std::min<std::size_t>(count, 3);
  if (count > 0)
    damage.text += concat(" (", join(std::span(damage.tensors).first(shown)),
                          count > shown ? concat(" and ", count - shown, " more") : "", ")");
  return damage;
}

/// Compares the chunks of a share with the manifest.
class Reader {
 public:
  Reader(std::string folder, const Manifest& manifest, const Share& share, const VerifyProgress& progress,
         const ReadSums* read)
      : folder_(std::move(folder)), manifest_(manifest), progress_(progress) {
    std::vector<Chunk> all;
    std::vector<std::int64_t> bytes;
    for (std::size_t file = 0; file < manifest.files.size(); ++file) {
      const Digest& digest = manifest.files[file].digest;
      for (std::size_t i = 0; i < digest.chunks.size(); ++i) {
        const std::uint64_t begin = i * digest.chunk_bytes, end = std::min(begin + digest.chunk_bytes, digest.size);
        all.push_back({file, i, begin, end, read != nullptr ? read->chunk(file, i) : ChunkSums()});
        bytes.push_back(static_cast<std::int64_t>(all.back().unread()));
      }
    }
    const std::vector<int> owners = layout::assign_owners(bytes, share.ranks);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (owners[i] == share.rank) chunks_.push_back(std::move(all[i]));
    for (const Chunk& chunk : chunks_) share_bytes_ += chunk.unread();
  }

  /// Returns the damaged ranges in manifest order.
  std::vector<Damage> check() {
    std::vector<Damage> damages;
    std::size_t next = 0;
    for (std::size_t file = 0; file < manifest_.files.size(); ++file) {
      const std::size_t first = next;
      while (next < chunks_.size() && chunks_[next].file == file) ++next;
      check_file(file, std::span(chunks_).subspan(first, next - first), damages);
    }
    return damages;
  }

  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct Chunk {
    std::size_t file, number;
    std::uint64_t begin, end;
    ChunkSums known;  ///< checksums known from an earlier read

    std::uint64_t unread() const {
      if (known.state != ChunkSums::State::open) return 0;
      std::uint64_t bytes = end - begin;
      for (const PieceSum& piece : known.pieces) bytes -= piece.end - piece.begin;
      return bytes;
    }
  };

  /// Only one file is open at a time: a checkpoint may have more files than a process may open.
  void check_file(std::size_t number, std::span<const Chunk> chunks, std::vector<Damage>& damages) {
    const ManifestFile& listed = manifest_.files[number];
    const RegularFile file(folder_, listed.name);
    std::string problem = file.problem();
    if (problem.empty() && file.size() != listed.digest.size)
      problem = concat(listed.name, " has ", file.size(), " bytes instead of ", listed.digest.size);
    if (!problem.empty()) {  // there is nothing to compare
      damages.push_back({listed.name, 0, listed.digest.size, {}, std::move(problem)});
      for (const Chunk& chunk : chunks) advance(chunk);
      return;
    }
    file.will_read_in_order();
    std::vector<Range> ranges;
    for (const Chunk& chunk : chunks) {
      const std::optional<std::string> wrong = compare(file, chunk);
      advance(chunk);
      if (!wrong) continue;
      if (!ranges.empty() && ranges.back().end == chunk.begin && ranges.back().why == *wrong)
        ranges.back().end = chunk.end;
      else
        ranges.push_back({chunk.begin, chunk.end, *wrong});
    }
    for (const Range& range : ranges) damages.push_back(damage_of(file, listed.name, range));
  }

  void advance(const Chunk& chunk) {
    done_ += chunk.unread();
    if (progress_ && chunk.unread() > 0) progress_(done_, share_bytes_);
  }

  /// Returns nullopt if the chunk is intact, the reason why it could not be read, or "" if its bytes differ.
  std::optional<std::string> compare(const RegularFile& file, const Chunk& chunk) {
    if (chunk.known.state == ChunkSums::State::whole) return std::nullopt;
    if (chunk.known.state == ChunkSums::State::damaged) return "";
    std::uint32_t crc = 0;
    std::uint64_t at = chunk.begin;
    for (const PieceSum& piece : chunk.known.pieces) {
      if (std::string why = take(file, at, piece.begin, crc); !why.empty()) return why;
      crc = crc32c_joined(crc, piece.crc, piece.end - piece.begin);
      at = piece.end;
    }
    if (std::string why = take(file, at, chunk.end, crc); !why.empty()) return why;
    if (crc == manifest_.files[chunk.file].digest.chunks[chunk.number]) return std::nullopt;
    return "";
  }

  /// Continues `crc` over the file's bytes [at, end). Returns the reason why they cannot be read, or "".
  std::string take(const RegularFile& file, std::uint64_t at, std::uint64_t end, std::uint32_t& crc) {
    while (at < end) {
      const auto bytes = std::span(buffer_).first(std::min<std::uint64_t>(buffer_.size(), end - at));
      if (std::string why = file.read(at, bytes); !why.empty()) return why;
      crc = crc32c(bytes, crc);
      at += bytes.size();
      bytes_read_ += bytes.size();
    }
    return "";
  }

  std::string folder_;
  const Manifest& manifest_;
  const VerifyProgress& progress_;
  std::vector<Chunk> chunks_;  // the chunks of this share
  std::uint64_t share_bytes_ = 0, done_ = 0, bytes_read_ = 0;
  std::vector<std::byte> buffer_ =
      std::vector<std::byte>(256 << 10);  // small enough to stay in the cache between pread and the checksum
};

/// Names come from untrusted files: line breaks and escape sequences must not imitate our own output.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return text;
}

}  // namespace

std::string Verdict::text() const {
  std::vector<std::string> lines;
  for (const Damage& damage : damages) lines.push_back(damage.text);
  const std::size_t shown = std::min<std::size_t>(lines.size(), 3);
  return concat(join(std::span(lines).first(shown), "; "),
                lines.size() > shown ? concat("; and ", lines.size() - shown, " more") : "");
}

Verdict verify_folder(const std::string& folder, const Share& share, const VerifyProgress& progress,
                      const ReadSums* read) {
  TESSERA_CHECK(share.ranks >= 1 && 0 <= share.rank && share.rank < share.ranks, "part ", share.rank, " of ",
                share.ranks);
  Verdict verdict;
  try {
    if (const RegularFile list(folder, kManifestName);
        !list.problem().empty() && path_exists(path_join(folder, kManifestName)))
      throw InputError(concat(folder, ": ", list.problem()));
    verdict.manifest = read_manifest(folder);
    if (share.rank == 0)
      for (NameProblem& problem : check_names(folder, verdict.manifest))
        verdict.damages.push_back({std::move(problem.file), 0, 0, {}, std::move(problem.text)});
  } catch (const InputError& error) {
    verdict.manifest = {};
    verdict.damages = {{kManifestName, 0, 0, {}, one_line(error.what())}};
    return verdict;
  }
  if (read != nullptr && manifest_text(read->manifest()) != manifest_text(verdict.manifest))
    read = nullptr;  // the folder has been replaced in the meantime
  Reader reader(folder, verdict.manifest, share, progress, read);
  std::vector<Damage> found = reader.check();
  found.insert(found.end(), std::make_move_iterator(verdict.damages.begin()),
               std::make_move_iterator(verdict.damages.end()));
  for (Damage& damage : found) damage.text = one_line(std::move(damage.text));
  verdict.damages = std::move(found);
  verdict.bytes_read = reader.bytes_read();
  return verdict;
}

}  // namespace tessera::format
