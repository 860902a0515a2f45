#pragma once
/// \file
/// The record of one collective: plain bytes without pointers, because a rank's records are in memory that its agent
/// reads after the rank has died (board.h). comm/recorder.h writes it.

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::launch {

enum class Op : std::uint8_t {
  broadcast,
  reduce,
  all_reduce,
  scatter,
  gather,
  all_gather,
  reduce_scatter,
  all_to_all,
  send,
  recv,
  barrier
};
constexpr int op_count = 11;
const char* op_name(Op op);

enum class Status : std::uint8_t {
  started,  ///< not known to be finished (running, or nobody waited)
  done,
  failed,
};

/// One collective. Times are CLOCK_MONOTONIC nanoseconds.
struct Entry {
  std::uint64_t id = 0;  ///< counts all entries of this process from 0
  /// Counts from 0 per group: collectives (equal on every rank), and separately send/recv.
  std::uint64_t sequence = 0;
  /// Hash of op, dtype, numel, root, reduction, group: equal on every rank for a collective.
  std::uint64_t fingerprint = 0;
  /// Hash of the fingerprints of all collectives of the group up to this one: equal only if all of them were.
  std::uint64_t chain = 0;
  std::int64_t numel = 0;          ///< elements of the larger tensor, that is the payload
  std::int64_t payload_bytes = 0;  ///< numel x element size of the caller's dtype
  std::int64_t wire_bytes = 0;     ///< theoretical value; see wire_bytes()
  std::int64_t moved_bytes = 0;    ///< bytes that the backend actually moved if it reports them; otherwise wire_bytes
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;     ///< when a wait() returned; 0 while the state is `started`
  std::int64_t waited_ns = 0;  ///< time that callers spent blocked in start and wait()
  std::uint32_t group_id = 0;  ///< the group's number in the job, equal on its ranks; 0: unknown (adopted groups)
  std::int32_t group_size = 1;
  std::int32_t peer = -1;  ///< root, destination or source; -1: none
  Op op = Op::barrier;
  Status status = Status::started;
  std::uint8_t row = 0;    ///< index of its group in RankSlot::totals (board.h), set by the recorder
  char reduction[8] = {};  ///< "sum", ...; empty: none
  char dtype[16] = {};     ///< "float32", ...; empty for a barrier
  char group[32] = {};     ///< the group's name, truncated to 31 bytes
  char tag[32] = {};       ///< the caller's Tag, truncated to 31 bytes
};

/// Minimum number of bytes that the busiest rank must send (the "bus bytes" of nccl-tests), with R = group size, S =
/// payload bytes: all_reduce 2 S (R-1)/R; all_gather, reduce_scatter, scatter, gather, all_to_all S (R-1)/R; broadcast,
/// reduce, send S; recv, barrier 0. One rank: 0.
std::int64_t wire_bytes(Op op, std::int64_t payload_bytes, int group_size);

/// The purpose of a group: its name without the number of its first rank, "tp" of "tp 4" (comm/mesh_groups.h). A name
/// that does not end with a number is returned whole.
std::string_view axis_of(std::string_view group);

/// Repairs an entry of another process: terminates its texts; false when it is invalid (an enumeration out of range).
bool repair(Entry& entry);

/// Short description: "1000 x float32, sum, root 0, tag 'bucket 3'"; "" for a plain barrier.
std::string details(const Entry& entry);
/// "all_reduce #12 of group 'world' (4 ranks, 1024 x float32, sum, tag 'bucket 3')".
std::string describe(const Entry& entry);

}  // namespace tessera::launch
