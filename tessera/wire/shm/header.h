#pragma once
/// \file
/// The first bytes of a segment: what it is, and what its process waits for.

#include <tessera/launch/watch/record.h>

#include <atomic>
#include <cstdint>

namespace tessera::wire::shm {

constexpr std::uint32_t segment_version = 3;

/// What the one thread of a process that starts operations is blocked in: an edge of the graph of who waits for whom.
/// A ring of such edges never moves again: ranks started operations in different orders, or of different groups.
struct WaitRecord {
  std::atomic<std::uint64_t> turn;  ///< odd while blocked; every wait has its own number
  /// Times that it looked while blocked: who has looked again has found since then that there is nothing for it yet.
  std::atomic<std::uint64_t> looks;
  std::atomic<std::int32_t> for_pid;  ///< the process that must act
  std::atomic<std::int32_t> starter;  ///< the thread that starts operations; -1: several, nothing can be concluded
  std::int32_t rank;                  ///< in the job
  launch::Entry entry;                ///< the operation that waits
};

struct SegmentHeader {
  char magic[8];
  std::uint32_t version, sealed;
  std::uint64_t control_bytes;  ///< sizes of this build
  std::uint64_t bytes;
  std::int32_t pid;
  std::uint32_t uid;
  char nonce[32];
  alignas(64) WaitRecord waiting;
  /// This process found that it waits for ever (a deadlock, or its launcher says so): the others of the same ring may
  /// read it here instead of finding out.
  std::atomic<std::uint32_t> stuck, stuck_writing;
  char stuck_reason[3072];  ///< written before `stuck`
};

}  // namespace tessera::wire::shm
