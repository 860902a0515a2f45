#pragma once
/// \file
/// A bound on the work of one expert (Fedus et al. 2022, section 2.2): slots beyond an expert's capacity are dropped,
/// which bounds the memory of even the most uneven batch.

#include <tessera/nn/moe/router.h>

#include <cstdint>

namespace tessera::nn {

/// Capacity in slots of each of `experts` experts for `tokens` tokens: ceil(tokens * top_k / experts * factor). Throws
/// Error unless factor > 0.
std::int64_t expert_capacity(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, double factor);

/// The slots that an expert keeps when too many choose it: those with the largest weights, or the first ones.
enum class DropBy { probability, position };

/// The capacity setting, as a multiple of the mean number of slots per expert.
struct CapacityOptions {
  double factor = 0;                  ///< 0: no bound, every slot is kept
  DropBy drop = DropBy::probability;  ///< selects the slots to drop
  bool pad = false;  ///< pad experts with fewer slots by zero rows up to the capacity (Routing::padded_to)
};

/// A choice within a capacity.
struct Limited {
  Routing routing;           ///< dropped slots have id -1 and a constant weight of 0
  std::int64_t dropped = 0;  ///< slots of this choice that exceeded the capacity
};
/// Keeps at most `capacity` slots per expert. Of slots with equal weights, the earlier one is kept.
Limited within_capacity(const Routing& routing, std::int64_t experts, std::int64_t capacity, DropBy by);

}  // namespace tessera::nn
