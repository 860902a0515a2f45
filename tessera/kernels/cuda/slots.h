#pragma once
/// \file
/// Sorts slots of tokens by expert: a stable counting sort (Knuth, TAOCP 3, 5.2, algorithm D) in four launches, without
/// blocking the host.

#include <cstdint>

namespace tessera::kernels::cuda {

/// Slots are numbered in input order, and an expert's slots keep that order. All pointers are on the device.
struct SlotOrder {
  const std::int64_t* ids = nullptr;  ///< [slots]: the slot's expert; -1: none
  std::int64_t rows_each = 0;         ///< > 0: fixed number of rows per expert; 0: one row per slot
  std::int64_t* order = nullptr;      ///< the slot of each row; rows without a slot are not written
  std::int64_t* inverse = nullptr;    ///< [slots]: the row of each slot; -1: none
  std::int64_t* counts = nullptr;     ///< [experts]: number of rows
  std::int32_t* ends = nullptr;       ///< [experts]: end of the expert's rows
  std::int32_t* scratch = nullptr;    ///< scratch of slot_scratch() elements, initially zero
};

/// Slots are counted in parts of this size, each by one block with the same number of threads.
constexpr std::int64_t slots_of_part = 256;
constexpr std::int64_t slot_parts(std::int64_t slots) { return (slots + slots_of_part - 1) / slots_of_part; }
/// Number of scratch elements that sort_slots() needs.
constexpr std::int64_t slot_scratch(std::int64_t slots, std::int64_t experts) {
  return experts * (slot_parts(slots) + 2);
}

/// Fills `a`'s results. `order` has `rows_each` rows for each expert, or `slots` rows. At most 2^31 - 1 slots and rows.
/// An id outside [-1, experts), or an expert with more slots than rows_each > 0, traps on the device (__trap): the
/// host, which does not wait, sees it as any other CUDA error. Runs on `stream` (a cudaStream_t); returns before the
/// work is done. Throws std::runtime_error with CUDA's message when a launch fails.
void sort_slots(const SlotOrder& a, std::int64_t slots, std::int64_t experts, void* stream);

}  // namespace tessera::kernels::cuda
