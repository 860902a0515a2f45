#pragma once
/// \file
/// Checksums of checkpoint data, computed while it is loaded: this way the folder need not be read again to be verified
/// against its manifest, and the loaded bytes themselves are verified. The CRC-32C of adjacent ranges can be joined, so
/// it does not matter which process reads which part: each process records its pieces and shares them with the others
/// (told), and together (hear_all) they obtain the checksum of every chunk read, whether by one process or in pieces by
/// several. verify_folder (verify.h) checks the bytes that no process reads (headers).

#include <tessera/format/manifest/manifest.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::format {

/// Bytes [begin, end) of a file, all in one chunk of its digest, and their checksum.
struct PieceSum {
  std::uint64_t begin = 0, end = 0;  ///< offsets from the start of the file
  std::uint32_t crc = 0;             ///< CRC-32C of these bytes
};

/// The verification state of a chunk.
struct ChunkSums {
  enum class State : std::uint8_t {
    open,     ///< not completely read
    whole,    ///< completely read, and its checksum matches the manifest
    damaged,  ///< its checksum does not match, or two readers got different bytes for the same range
  };  ///< whether the chunk has been read completely and is correct
  State state = State::open;     ///< not open: `pieces` is empty
  std::vector<PieceSum> pieces;  ///< ranges of an open chunk read so far: ascending, disjoint, adjacent ones joined
};

/// Members may be called from several threads.
class ReadSums {
 public:
  /// Starts with no bytes of `folder` read; `manifest` lists its files.
  ReadSums(const std::string& folder, Manifest manifest);

  const Manifest& manifest() const { return manifest_; }  ///< the manifest to verify against
  /// Index in the manifest of the file with this path, which starts with the folder passed to the constructor; nullopt:
  /// not one of the folder's files.
  std::optional<std::size_t> file_at(const std::string& path) const;

  /// Records pieces of one file. Bytes beyond its listed size are ignored.
  void add(std::size_t file, std::span<const PieceSum> pieces);

  /// The combined pieces of a chunk, from all readers. If pieces of different readers overlap without being identical,
  /// one of them is used, and the rest of the other piece remains open.
  ChunkSums chunk(std::size_t file, std::size_t number) const;

  /// Serializes this process's knowledge for the others: about 16 bytes per piece of an open chunk, and little for the
  /// rest.
  std::string told() const;
  /// Replaces the knowledge by the combination of what all processes, including this one, have serialized, so that all
  /// have the same knowledge. Ignores "" and data for another manifest. Throws Error for data not produced by told().
  void hear_all(std::span<const std::string> told);

 private:
  std::size_t index_of(std::size_t file, std::size_t number) const { return first_chunk_[file] + number; }
  void note(std::size_t file, const PieceSum& piece);  // call note() and hear() with the mutex held
  void hear(std::string_view told);

  Manifest manifest_;
  std::uint32_t manifest_crc_;                            // checksum of the manifest's text
  std::unordered_map<std::string, std::size_t> file_at_;  // by path
  std::vector<std::size_t> first_chunk_;                  // first chunk of each file, then the total number
  mutable std::mutex mutex_;
  std::vector<ChunkSums> chunks_;  // pieces in order of arrival
};

/// Checksums of bytes that one thread reads sequentially. `sums` may be null: nothing is recorded.
class ReadRun {
 public:
  /// Starts at byte `at` of the manifest's file number `file`. `sums` must outlive it.
  ReadRun(ReadSums* sums, std::size_t file, std::uint64_t at) : sums_(sums), file_(file), at_(at) {}
  /// Adds the next bytes. Best called while they are still in the processor's cache.
  void take(std::span<const std::byte> bytes);
  /// Records the checksums; if this is not called (because reading failed), nothing is recorded.
  void end();

 private:
  ReadSums* sums_;
  std::size_t file_;
  std::uint64_t at_;
  std::vector<PieceSum> pieces_;  // one per chunk
};

}  // namespace tessera::format
