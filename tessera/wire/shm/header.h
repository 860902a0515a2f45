#pragma once
/// \file
/// The first bytes of a segment: its identity, and what its process waits for.

#include <tessera/launch/watch/record.h>

#include <atomic>
#include <cstdint>

namespace tessera::wire::shm {

constexpr std::uint32_t segment_version = 3;

/// The operation that blocks the process's operation-starting thread: an edge of the wait-for graph. A cycle of such
/// edges is a deadlock: ranks started operations in different orders, or of different groups.
struct WaitRecord {
  std::atomic<std::uint64_t> turn;  ///< odd while blocked; every wait has its own number
  /// Checks made while blocked: if it has increased since, the process has looked again and found nothing to do.
  std::atomic<std::uint64_t> looks;
  std::atomic<std::int32_t> for_pid;  ///< the process that must act
  std::atomic<std::int32_t> starter;  ///< the thread that starts operations; -1: several, so no conclusion is possible
  std::int32_t rank;                  ///< rank in the job
  launch::Entry entry;                ///< the waiting operation
};

struct SegmentHeader {
  char magic[8];
  std::uint32_t version, sealed;
  std::uint64_t control_bytes;  ///< sizeof(Control) in this build
  std::uint64_t bytes;
  std::int32_t pid;
  std::uint32_t uid;
  char nonce[32];
  alignas(64) WaitRecord waiting;
  /// Set when this process has found that it would wait forever (a deadlock, or the launcher's request): other
  /// processes of the same cycle read the reason here.
  std::atomic<std::uint32_t> stuck, stuck_writing;
  char stuck_reason[3072];  ///< written before `stuck`
};

}  // namespace tessera::wire::shm
