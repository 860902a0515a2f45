#pragma once
/// \file
/// The message of `tessera plan check` for a run that does not fit, and --memory_check of `tessera train`.

#include <tessera/plan/search.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {
struct RunConfig;
}

namespace tessera::tool {

/// "does not fit: every rank needs 83.1 GB of 75.2 GB, activations 41.0 GB: use --gradient_checkpointing: ...", with
/// the smallest change that makes the run fit, if one of the changes tried does.
std::string does_not_fit(const plan::Question& question, const plan::Candidate& candidate);

/// Verdict on the host memory for a run on CPUs, before anything is loaded.
struct MemoryVerdict {
  bool refused = false;  ///< the run cannot fit; false: it might not fit
  bool counted = true;   ///< false: the planner cannot predict it; `text` has the reason
  std::string text;
};
/// `local_ranks` of `world` processes are on this host, which has `available` bytes left. Returns nullopt if the run
/// fits, on devices other than the CPU, and with offloading.
///
/// The prediction is off by a few per cent, seldom by a third (docs/planning.md). So a run is refused when the exactly
/// counted parts (parameters, gradients, optimizer states and program) alone exceed the memory, or when the total
/// exceeds it by half; a smaller excess is a warning. With auto_find_batch_size, the memory for one row per process is
/// what matters.
std::optional<MemoryVerdict> judge_memory(const RunConfig& config, int world, int local_ranks, std::int64_t available);

/// Applies judge_memory() to this host as --memory_check requests: a refusal throws InputError, or prints a warning if
/// the setting is `warn`. `speaks`: whether this process prints the warning.
void check_memory(const RunConfig& config, int world, int local_ranks, bool speaks);

}  // namespace tessera::tool
