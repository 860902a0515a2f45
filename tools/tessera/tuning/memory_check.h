#pragma once
/// \file
/// Does it fit? What `tessera plan check` says of a run that does not, and --memory_check of `tessera train`.

#include <tessera/plan/search.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {
struct RunConfig;
}

namespace tessera::tool {

/// "does not fit: every rank needs 83.1 GB of 75.2 GB, activations 41.0 GB: use --gradient_checkpointing: ...": with
/// the smallest change that makes it fit, if there is one among those tried.
std::string does_not_fit(const plan::Question& question, const plan::Candidate& candidate);

/// What a run on CPUs would need of this host, before anything of it is loaded.
struct MemoryVerdict {
  bool refused = false;  ///< it cannot fit; else it may not
  bool counted = true;   ///< false: the planner cannot tell, and `text` says why
  std::string text;
};
/// `local_ranks` of `world` processes are on this host, of which `available` bytes may be taken. Nothing where it fits,
/// on other devices, and with offloading.
///
/// The prediction is off by a few per cent, seldom by a third (docs/planning.md). So a run is refused when parameters,
/// gradients, optimizer states and program, which are counted, exceed the memory by themselves, or when everything does
/// by half; where it does by less, that is a warning. With auto_find_batch_size one row per process counts.
std::optional<MemoryVerdict> judge_memory(const RunConfig& config, int world, int local_ranks, std::int64_t available);

/// judge_memory() of this host as --memory_check wants it: a refusal throws InputError, or is a warning with `warn`.
/// `speaks`: whether this process is the one that warns.
void check_memory(const RunConfig& config, int world, int local_ranks, bool speaks);

}  // namespace tessera::tool
