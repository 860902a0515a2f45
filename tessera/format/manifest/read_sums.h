#pragma once
/// \file
/// Checksums of what is read of a checkpoint, taken where it is read into its place: comparing the folder with its
/// manifest need not read it a second time, and it is the loaded bytes that are compared. CRC-32C of neighbours can be
/// joined, so it does not matter who reads which part: each process notes its pieces and tells the others (told), and
/// together (hear_all) they know the checksum of every chunk that one has read whole or several have read in pieces.
/// What nobody has read (headers) is left to verify_folder (verify.h).

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

/// Bytes [begin, end) of a file, which lie in one chunk of its digest, and their checksum.
struct PieceSum {
  std::uint64_t begin = 0, end = 0;  ///< from the beginning of the file
  std::uint32_t crc = 0;             ///< CRC-32C of these bytes
};

/// What is known of a chunk.
struct ChunkSums {
  enum class State : std::uint8_t {
    open,     ///< not all of it has been read
    whole,    ///< somebody has read all of it, and its checksum is the manifest's
    damaged,  ///< its checksum is another one, or two readers of the same bytes have seen different ones
  };  ///< how far it has been read, and whether rightly
  State state = State::open;     ///< not open: `pieces` is empty
  std::vector<PieceSum> pieces;  ///< what is read so far of an open one: ascending, disjoint, neighbours joined
};

/// Members may be called from several threads.
class ReadSums {
 public:
  /// Starts with nothing read of the folder that `manifest` lists.
  ReadSums(const std::string& folder, Manifest manifest);

  const Manifest& manifest() const { return manifest_; }  ///< what is compared with
  /// Number in the manifest of the file at this path, which the folder was given with; none: it is not one of the
  /// folder's.
  std::optional<std::size_t> file_at(const std::string& path) const;

  /// Notes pieces of one file. What lies beyond its listed size is left aside.
  void add(std::size_t file, std::span<const PieceSum> pieces);

  /// What the pieces of a chunk add up to, of all readers heard. Where pieces of different readers overlap without
  /// being the same, one of them counts, and what it leaves uncovered is open.
  ChunkSums chunk(std::size_t file, std::size_t number) const;

  /// All that is known here, for other processes: about 16 bytes for each piece of open chunks, little for the others.
  std::string told() const;
  /// Forgets all and takes in what processes have told, this one among them, so that all know the same. What was told
  /// of another manifest, and "", says nothing. Throws Error when it is not what told() gives.
  void hear_all(std::span<const std::string> told);

 private:
  std::size_t index_of(std::size_t file, std::size_t number) const { return first_chunk_[file] + number; }
  void note(std::size_t file, const PieceSum& piece);  // these two with the mutex held
  void hear(std::string_view told);

  Manifest manifest_;
  std::uint32_t manifest_crc_;                            // checksum of its text
  std::unordered_map<std::string, std::size_t> file_at_;  // by path
  std::vector<std::size_t> first_chunk_;                  // by file; then the number of all chunks
  mutable std::mutex mutex_;
  std::vector<ChunkSums> chunks_;  // pieces in the order of their coming
};

/// Checksums of bytes that one thread reads one after another. `sums` may be null: nothing is noted.
class ReadRun {
 public:
  /// Reads the manifest's file number `file`, from byte `at` on. `sums` must outlive it.
  ReadRun(ReadSums* sums, std::size_t file, std::uint64_t at) : sums_(sums), file_(file), at_(at) {}
  /// The next bytes. Best called while they are still in the processor's cache.
  void take(std::span<const std::byte> bytes);
  /// Notes all of them; without it nothing is noted (reading has failed).
  void end();

 private:
  ReadSums* sums_;
  std::size_t file_;
  std::uint64_t at_;
  std::vector<PieceSum> pieces_;  // one per chunk
};

}  // namespace tessera::format
