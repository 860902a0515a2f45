#pragma once
/// \file
/// The state that a rank of a group publishes in its own segment: one control area per group and rank. Only the owner
/// writes it, except where a comment names other writers.
///
///   [ Control | slot_count x inline_bytes: small payloads | staging_depth x chunk_bytes: chunks of large ones ]

#include <tessera/launch/watch/record.h>
#include <tessera/wire/failure.h>
#include <tessera/wire/shm/doorbell.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera::wire::shm {

constexpr int max_ranks = 64;
/// Number of collectives by which a rank may be ahead of the slowest rank.
constexpr std::uint64_t slot_count = 16;
/// Payloads up to this size are published whole when the operation starts (one-shot).
constexpr std::size_t inline_bytes = 64 << 10;
/// Larger ones outside the arena pass through `staging_depth` chunks, small enough to stay in the cache between the
/// writer and its readers.
constexpr std::size_t chunk_bytes = 256 << 10, staging_depth = 4;
constexpr int message_count = 64;

/// Location of a rank's contribution to an operation.
enum class Source : std::uint32_t {
  none,    ///< it contributes nothing
  whole,   ///< complete at `offset` of its segment from the beginning
  staged,  ///< arrives in its staging area chunk by chunk; `produced` counts the chunks
};

/// One rank's state of one collective. Written before `posted`, except the counters. Not reused before every rank has
/// finished the collective.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> posted;  ///< number of the collective in this group + 1
  std::uint64_t fingerprint, sequence, part_bytes;
  Source source;
  std::uint64_t offset, bytes;
  /// Steps of the operation that this rank has staged; has reduced (its slice of each chunk); has finished reading.
  alignas(64) std::atomic<std::uint32_t> produced;
  std::atomic<std::uint32_t> reduced, consumed;
  launch::Entry entry;
  std::uint64_t splits[max_ranks];  ///< all_to_all: bytes for each rank
};

enum class MessageState : std::uint32_t { free, posted, taken, refused };

/// A message in transit. The receiver sets `state` to taken or refused and rings the sender's bell.
struct alignas(64) MessageSlot {
  std::atomic<MessageState> state;
  std::int32_t destination, tag;
  std::uint64_t number;         ///< sequence number among this rank's messages in this group
  std::uint64_t offset, bytes;  ///< location of the data in the sender's segment
  launch::Entry entry;
};

enum class TeamState : std::uint32_t { open, failed, closed };

struct Control {
  Doorbell pulse;  ///< rung by the owner at every change that others may wait for
  /// The processor that last ran the owner: a rank on the same one must not spin while it waits for the owner.
  std::atomic<std::int32_t> processor;
  Doorbell bell;                                    ///< rung by others: a message arrived, or was taken
  alignas(64) std::atomic<std::uint64_t> finished;  ///< number of collectives for which this rank needs no other rank's
                                                    ///< memory any more
  std::atomic<TeamState> state;
  std::atomic<Code> failure;  ///< why it failed; this and the text are written before `state`
  char reason[3072];
  Slot slots[slot_count];
  MessageSlot messages[message_count];
};

constexpr std::size_t control_bytes = (sizeof(Control) + 4095) / 4096 * 4096;
constexpr std::size_t area_bytes = control_bytes + slot_count * inline_bytes + staging_depth * chunk_bytes;

inline std::byte* inline_data(Control& control, std::uint64_t number) {
  return reinterpret_cast<std::byte*>(&control) + control_bytes + number % slot_count * inline_bytes;
}
inline std::byte* staging(Control& control) {
  return reinterpret_cast<std::byte*>(&control) + control_bytes + slot_count * inline_bytes;
}

}  // namespace tessera::wire::shm
