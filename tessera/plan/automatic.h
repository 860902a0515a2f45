#pragma once
/// \file
/// --strategy auto: from the settings of a run and its processes to the plan that this machine does fastest, as
/// settings. What somebody gave stays as it is; the global batch stays what plain data parallelism over the processes
/// would have. Given auto_min_batch_size or auto_max_batch_size, per_device_train_batch_size and
/// gradient_accumulation_steps say no more than that global batch, and are chosen anew within the bounds.

#include <tessera/config/resolve/resolve.h>
#include <tessera/plan/search.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::plan {

/// The processes that will train.
struct Processes {
  int world_size = 1, per_host = 1;
  double free_bytes = 0;  ///< that those of this host may still take together; 0: unknown
};

struct Chosen {
  config::Resolved resolved;       ///< with the plan's settings, derived from "auto_strategy"
  std::vector<std::string> lines;  ///< for people: what was chosen, why, how its neighbours do
};

/// Empty: the settings are right; else the first problem.
using Check = std::function<std::string(const config::Resolved&)>;

/// The hardware is this machine's calibration file; without one the built-in CPU, or the GPU that the driver names.
/// Plans that `check` refuses are passed over. Throws InputError: nothing fits, nothing passes, unknown hardware.
Chosen choose_plan(const config::Resolved& resolved, const Processes& processes, const Check& check);

/// In the output folder.
inline constexpr const char* chosen_file = "auto_strategy.yaml";
/// The settings that choose_plan() may change, as our own configuration file says them, with the processes that they
/// were chosen for: what that file holds.
std::string chosen_text(const RunConfig& config, int world_size);
/// The same settings from that file. nullopt: there is none, or it is of another number of processes or contradicts
/// what is given now. `note` says why.
std::optional<Chosen> chosen_before(const config::Resolved& resolved, const std::string& path, int world_size,
                                    std::string& note);

}  // namespace tessera::plan
