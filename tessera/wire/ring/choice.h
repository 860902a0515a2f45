#pragma once
/// \file
/// Chooses the algorithm of a collective over Gloo, based on measurements.

#include <tessera/wire/ring/schedule.h>

#include <cstdint>
#include <optional>

namespace tessera::wire::ring {

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  std::int64_t chunk_bytes = std::int64_t{1} << 19;
  int window = 4;
};

/// nullopt: Gloo's own collective is at least as fast. `bytes`: of the whole tensor, ranks x part for reduce_scatter
/// and all_gather. Depends only on the arguments, so that all ranks agree.
/// `half`: bf16 or fp16, which Gloo's own reductions send as fp32.
std::optional<Choice> choose(Collective collective, std::int64_t bytes, int size, bool half);

}  // namespace tessera::wire::ring
