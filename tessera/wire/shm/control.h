#pragma once
/// \file
/// What a rank of a group shows to the others, in its own segment: one control area per group and rank. The owner
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
/// Collectives that a rank may be ahead of the slowest one.
constexpr std::uint64_t slot_count = 16;
/// Payloads up to this size are published whole when the operation starts: one shot.
constexpr std::size_t inline_bytes = 64 << 10;
/// Larger ones that are not in the arena pass through `staging_depth` chunks: small enough to stay in the cache between
/// the writer and its readers.
constexpr std::size_t chunk_bytes = 256 << 10, staging_depth = 4;
constexpr int message_count = 64;

/// Where the data lies that a rank gives to an operation.
enum class Source : std::uint32_t {
  none,    ///< it gives nothing
  whole,   ///< complete at `offset` of its segment, from the start
  staged,  ///< comes chunk by chunk through its staging; `produced` counts
};

/// One collective of one rank. Written before `posted`; counters afterwards. Not reused before every rank has finished
/// the collective.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> posted;  ///< number of the collective in this group + 1
  std::uint64_t fingerprint, sequence, part_bytes;
  Source source;
  std::uint64_t offset, bytes;
  /// Steps of the operation that this rank has staged; reduced (its part of each chunk); read all it needs of.
  alignas(64) std::atomic<std::uint32_t> produced;
  std::atomic<std::uint32_t> reduced, consumed;
  launch::Entry entry;
  std::uint64_t splits[max_ranks];  ///< all_to_all: bytes for each rank
};

enum class MessageState : std::uint32_t { free, posted, taken, refused };

/// One message on its way. The receiver sets `state` to taken or refused and rings the sender's bell.
struct alignas(64) MessageSlot {
  std::atomic<MessageState> state;
  std::int32_t destination, tag;
  std::uint64_t number;         ///< messages of this rank in this group, in order
  std::uint64_t offset, bytes;  ///< where the data lies in the sender's segment
  launch::Entry entry;
};

enum class TeamState : std::uint32_t { open, failed, closed };

struct Control {
  Doorbell pulse;  ///< the owner rings at every change that others may wait for
  /// The processor that the owner was last seen on: who shares it must not spin while he waits for him.
  std::atomic<std::int32_t> processor;
  Doorbell bell;  ///< others ring: a message came, or was taken
  alignas(
      64) std::atomic<std::uint64_t> finished;  ///< collectives of which this rank needs no memory of others any more
  std::atomic<TeamState> state;
  std::atomic<Code> failure;  ///< why it failed; written before `state`, as is the text
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
