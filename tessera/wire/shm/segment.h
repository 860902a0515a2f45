#pragma once
/// \file
/// wire/shm/: collectives of the processes of one host through shared memory.
///
/// The memory that a process shares with the other ranks of its host: one memfd per process, mapped by every peer.
/// Torch-free.
///
///   [ header | heap: control areas, staging, messages | arena: tensors of comm::empty_shared ]
///
/// The file is sparse (pages exist once they are written), has mode 600, cannot be shrunk or grown (seals), has no name
/// in the file system and goes with its last holder: nothing remains of processes that were killed. A peer opens it as
/// /proc/PID/fd/N; PID, N and a random nonce travel through the job's store.

#include <tessera/base/free_ranges.h>
#include <tessera/launch/agent/unique_fd.h>

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::wire::shm {

struct SegmentHeader;

struct MemoryRange {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct SegmentSizes {
  std::size_t heap = 0, arena = 0;  ///< multiples of 2 MB
};
/// Address space, not memory: 8 GB of heap and as much arena as the machine has memory, within RLIMIT_FSIZE and
/// RLIMIT_AS.
SegmentSizes default_sizes();

/// The segment of this process. Thread-safe.
class Segment {
 public:
  /// Throws Error when the system gives neither a memfd nor a file in TMPDIR (then without an arena).
  explicit Segment(SegmentSizes sizes = default_sizes());
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* base() const { return base_; }
  SegmentHeader& header() const;
  std::size_t bytes() const { return bytes_; }

  /// Memory for tensors that peers read directly; 2 MB aligned, zero until written. wire/shm/arena.h divides it.
  MemoryRange arena() const;
  /// Where `data` lies, counted from base(), when all `bytes` from it are inside the arena.
  std::optional<std::uint64_t> offset_in_arena(const void* data, std::size_t bytes = 1) const;

  /// A piece of the heap, 4 KB aligned; its contents are undefined (zero when never used). Throws Error when full.
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* piece);
  std::uint64_t offset(const std::byte* piece) const { return static_cast<std::uint64_t>(piece - base_); }

  /// What a peer needs to open it: "PID FD BYTES NONCE".
  std::string address() const;

 private:
  launch::UniqueFd fd_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0, heap_begin_ = 0, arena_begin_ = 0;
  std::string nonce_;
  std::mutex mutex_;
  FreeRanges free_;                          // offsets from base_, bytes
  std::map<std::size_t, std::size_t> used_;  // begin -> bytes
};

/// A peer's segment, mapped for reading and writing.
class PeerSegment {
 public:
  /// `address` is what the peer's Segment::address() gave. Throws Error, saying which rule is broken, when it is not
  /// there, belongs to another user, is readable by others, truncated, of another build or not the one that the address
  /// means (stale).
  explicit PeerSegment(const std::string& address);
  ~PeerSegment();
  PeerSegment(const PeerSegment&) = delete;
  PeerSegment& operator=(const PeerSegment&) = delete;

  pid_t pid() const { return pid_; }
  SegmentHeader& header() const;
  std::size_t bytes() const { return bytes_; }
  /// Throws Error when the range is not inside the segment (a peer's word is checked before it is used).
  std::byte* at(std::uint64_t offset, std::size_t bytes) const;
  /// False once the process has ended. Costs a system call.
  bool alive() const;

 private:
  launch::UniqueFd pidfd_;
  pid_t pid_ = -1;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  bool borrowed_ = false;  // the memory is another Segment's of this process: ranks that are threads, in tests
};

/// The segment of this process, made at the first call and kept until the process ends (tensors and threads may outlive
/// main()). A forked child gets one of its own.
Segment& process_segment();
/// The mapping of a peer, shared by all groups of this process.
std::shared_ptr<PeerSegment> map_peer(const std::string& address);
/// The mapping of a process that some group of this one knows; null when there is none.
std::shared_ptr<PeerSegment> known_peer(pid_t pid);
/// Names the machine and the process namespace: ranks with equal texts can share memory.
std::string host_identity();

/// Where `data` lies in the arena of this process; nullopt when it does not (or this process has no segment yet).
std::optional<std::uint64_t> offset_in_arena(const void* data, std::size_t bytes = 1);

}  // namespace tessera::wire::shm
