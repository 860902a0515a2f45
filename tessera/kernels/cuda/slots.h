#pragma once
/// \file
/// Slots of tokens sorted by the expert that they go to: a stable counting sort (Knuth, TAOCP 3, 5.2, algorithm D) in
/// four launches, without a wait of the host.

#include <cstdint>

namespace tessera::kernels::cuda {

/// Slots are numbered as they come; those of one expert stay in that order. All pointers are on the device.
struct SlotOrder {
  const std::int64_t* ids = nullptr;  ///< [slots]: the slot's expert; -1: none
  std::int64_t rows_each = 0;         ///< > 0: the rows of every expert, whatever was chosen; 0: as many as slots
  std::int64_t* order = nullptr;      ///< the slot of each row; rows that no slot takes stay what they were
  std::int64_t* inverse = nullptr;    ///< [slots]: the row of each slot; -1: none
  std::int64_t* counts = nullptr;     ///< [experts]: rows of each
  std::int32_t* ends = nullptr;       ///< [experts]: where the rows of each end
  std::int32_t* scratch = nullptr;    ///< slot_scratch() numbers, zeros
};

/// Slots are counted in parts of this size, each by one block of as many threads.
constexpr std::int64_t slots_of_part = 256;
constexpr std::int64_t slot_parts(std::int64_t slots) { return (slots + slots_of_part - 1) / slots_of_part; }
/// How many numbers of scratch memory sort_slots() wants.
constexpr std::int64_t slot_scratch(std::int64_t slots, std::int64_t experts) {
  return experts * (slot_parts(slots) + 2);
}

/// Fills `a`'s results. `order` has `rows_each` rows for each expert, or `slots`. At most 2^31 - 1 slots and rows. An
/// id outside [-1, experts), and an expert with more slots than rows_each > 0, stop the device (__trap): the host,
/// which does not wait, learns of it as of any error of CUDA's. In the order of `stream` (a cudaStream_t); returns
/// before it is done. Throws std::runtime_error with CUDA's words when a launch fails.
void sort_slots(const SlotOrder& a, std::int64_t slots, std::int64_t experts, void* stream);

}  // namespace tessera::kernels::cuda
