#pragma once
/// \file
/// A bound on what one expert may have to do (Fedus et al. 2022, section 2.2): slots beyond an expert's capacity are
/// dropped, so that no batch, however uneven, takes more memory than that.

#include <tessera/nn/moe/router.h>

#include <cstdint>

namespace tessera::nn {

/// Slots that each of `experts` takes of `tokens` tokens: ceil(tokens * top_k / experts * factor). Throws Error unless
/// factor > 0.
std::int64_t expert_capacity(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, double factor);

/// Who stays where an expert is wanted by more: those with the largest weights, or those that come first.
enum class DropBy { probability, position };

/// A bound as a setting: capacity of each expert, in means of the slots; 0: there is none.
struct CapacityOptions {
  double factor = 0;                  ///< 0: every slot stays
  DropBy drop = DropBy::probability;  ///< whose slots go first
  bool pad = false;  ///< an expert that is wanted by fewer is given rows of zeros up to it (Routing::padded_to)
};

/// A choice within a capacity.
struct Limited {
  Routing routing;           ///< dropped slots have id -1 and weight 0, which is constant
  std::int64_t dropped = 0;  ///< slots of this choice that were beyond it
};
/// At most `capacity` slots per expert. Of equal weights the earlier one stays.
Limited within_capacity(const Routing& routing, std::int64_t experts, std::int64_t capacity, DropBy by);

}  // namespace tessera::nn
