#pragma once
/// \file
/// wire/shm/: collectives of the processes of one host through shared memory.
///
/// The memory that a process shares with the other ranks of its host: one memfd per process, mapped by every peer.
/// Torch-free.
///
///   [ header | heap: control areas, staging, messages | arena: tensors of comm::empty_shared ]
///
/// The file is sparse (pages exist once written), has mode 600, cannot change its size (seals) and has no name in the
/// file system. It disappears with the last process that holds it, so killed processes leave nothing behind. A peer
/// opens it as /proc/PID/fd/N; PID, N and a random nonce are exchanged through the job's store.

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
/// Sizes of address space, not memory: 8 GB of heap and an arena as large as the machine's memory, within RLIMIT_FSIZE
/// and RLIMIT_AS.
SegmentSizes default_sizes();

/// This process's segment. Thread-safe.
class Segment {
 public:
  /// Throws Error if the system provides neither a memfd nor a file in TMPDIR (the latter has no arena).
  explicit Segment(SegmentSizes sizes = default_sizes());
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* base() const { return base_; }
  SegmentHeader& header() const;
  std::size_t bytes() const { return bytes_; }

  /// Memory for tensors that peers read directly; 2 MB aligned, zero until written. wire/shm/arena.h allocates from it.
  MemoryRange arena() const;
  /// Offset of `data` from base() if all `bytes` are inside the arena.
  std::optional<std::uint64_t> offset_in_arena(const void* data, std::size_t bytes = 1) const;

  /// Allocates from the heap, 4 KB aligned; contents undefined (zero if never used). Throws Error if it is full.
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* piece);
  std::uint64_t offset(const std::byte* piece) const { return static_cast<std::uint64_t>(piece - base_); }

  /// The information with which a peer opens the segment: "PID FD BYTES NONCE".
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
  /// `address`: the result of the peer's Segment::address(). Throws Error naming the violated rule if the segment is
  /// absent, belongs to another user, is readable by others, truncated, from another build, or not the segment that the
  /// address refers to (stale).
  explicit PeerSegment(const std::string& address);
  ~PeerSegment();
  PeerSegment(const PeerSegment&) = delete;
  PeerSegment& operator=(const PeerSegment&) = delete;

  pid_t pid() const { return pid_; }
  SegmentHeader& header() const;
  std::size_t bytes() const { return bytes_; }
  /// Throws Error if the range is not inside the segment: offsets from a peer are checked before use.
  std::byte* at(std::uint64_t offset, std::size_t bytes) const;
  /// False once the process has ended. Makes a system call.
  bool alive() const;

 private:
  launch::UniqueFd pidfd_;
  pid_t pid_ = -1;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  bool borrowed_ = false;  // another Segment of this process owns the memory: ranks as threads, in tests
};

/// This process's segment, created by the first call and kept until the process ends, because tensors and threads may
/// outlive main(). A forked child gets its own.
Segment& process_segment();
/// A peer's mapping, shared by all groups of this process.
std::shared_ptr<PeerSegment> map_peer(const std::string& address);
/// The existing mapping of a process that belongs to some group of this one; null if it is not mapped.
std::shared_ptr<PeerSegment> known_peer(pid_t pid);
/// Identifies the machine and the process namespace: ranks with equal texts can share memory.
std::string host_identity();

/// Offset of `data` in this process's arena; nullopt if it is outside the arena, or before the segment exists.
std::optional<std::uint64_t> offset_in_arena(const void* data, std::size_t bytes = 1);

}  // namespace tessera::wire::shm
