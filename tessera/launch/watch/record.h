#pragma once
/// \file
/// What is remembered of one collective: plain bytes without pointers, because the record of a rank lies in memory that
/// its agent reads after the rank has died (board.h). comm/recorder.h writes it.

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
  started,  ///< not yet known to be finished (running, or nobody waited)
  done,
  failed,
};

/// One collective. Times are CLOCK_MONOTONIC nanoseconds.
struct Entry {
  std::uint64_t id = 0;  ///< counts all entries of this process from 0
  /// Counts from 0 per group: collectives (equal on every rank), and send/recv apart from them.
  std::uint64_t sequence = 0;
  /// Hash of op, dtype, numel, root, reduction, group: equal on every rank for a collective.
  std::uint64_t fingerprint = 0;
  /// Hash of the fingerprints of all collectives of the group up to this one: equal only if all of them were.
  std::uint64_t chain = 0;
  std::int64_t numel = 0;          ///< elements of the larger tensor: the payload
  std::int64_t payload_bytes = 0;  ///< numel x element size of the caller's dtype
  std::int64_t wire_bytes = 0;     ///< by theory, see wire_bytes()
  std::int64_t moved_bytes = 0;    ///< what the backend really moved, where it says so; else wire_bytes
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;     ///< when a wait() returned; 0 while started
  std::int64_t waited_ns = 0;  ///< time that callers spent blocked in start and wait()
  std::uint32_t group_id = 0;  ///< the group's number in the job, equal on its ranks; 0: not known (adopted groups)
  std::int32_t group_size = 1;
  std::int32_t peer = -1;  ///< root, destination or source; -1 when there is none
  Op op = Op::barrier;
  Status status = Status::started;
  std::uint8_t row = 0;    ///< where its group is in RankSlot::totals (board.h); the recorder fills it in
  char reduction[8] = {};  ///< "sum", ...; empty when there is none
  char dtype[16] = {};     ///< "float32", ...; empty for a barrier
  char group[32] = {};     ///< the group's name, cut to 31 bytes
  char tag[32] = {};       ///< the caller's Tag, cut to 31 bytes
};

/// Bytes that the busiest rank must at least send (the "bus bytes" of nccl-tests), R = group size, S = payload bytes:
/// all_reduce 2 S (R-1)/R; all_gather, reduce_scatter, scatter, gather, all_to_all S (R-1)/R; broadcast, reduce, send
/// S; recv, barrier 0. One rank: 0.
std::int64_t wire_bytes(Op op, std::int64_t payload_bytes, int group_size);

/// What a group is for: its name without the number of its first rank, "tp" of "tp 4" (comm/mesh_groups.h). A name that
/// does not end with a number is its own axis.
std::string_view axis_of(std::string_view group);

/// For an entry that came from elsewhere: ends its texts; false when it cannot be one (an enumeration out of range).
bool repair(Entry& entry);

/// "1000 x float32, sum, root 0, tag 'bucket 3'": what an entry is about, in short; "" for a plain barrier.
std::string details(const Entry& entry);
/// "all_reduce #12 of group 'world' (4 ranks, 1024 x float32, sum, tag 'bucket 3')".
std::string describe(const Entry& entry);

}  // namespace tessera::launch
