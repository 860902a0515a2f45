#pragma once
/// \file
/// --strategy auto: finds this machine's fastest plan for a run's settings and processes, and returns it as settings.
/// Settings given by the user are kept, and so is the global batch that plain data parallelism over the processes would
/// have. If auto_min_batch_size or auto_max_batch_size is given, per_device_train_batch_size and
/// gradient_accumulation_steps only define that global batch, and are chosen again within the bounds.

#include <tessera/config/resolve/resolve.h>
#include <tessera/plan/search.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::plan {

/// The processes of the training.
struct Processes {
  int world_size = 1, per_host = 1;
  double free_bytes = 0;  ///< memory that all processes of this host together can still allocate; 0: unknown
};

struct Chosen {
  config::Resolved resolved;       ///< with the plan's settings, derived from "auto_strategy"
  std::vector<std::string> lines;  ///< for users: the choice, the reason, and a comparison with neighbouring plans
};

/// Returns the first problem of the settings; empty: valid.
using Check = std::function<std::string(const config::Resolved&)>;

/// Uses this machine's calibration file as hardware; without one the built-in CPU, or the GPU that the driver reports.
/// Skips plans that `check` rejects. Throws InputError: nothing fits, no plan passes, unknown hardware.
Chosen choose_plan(const config::Resolved& resolved, const Processes& processes, const Check& check);

/// File name in the output folder.
inline constexpr const char* chosen_file = "auto_strategy.yaml";
/// Content of that file: the settings that choose_plan() may change, in the format of our configuration file, with the
/// number of processes they were chosen for.
std::string chosen_text(const RunConfig& config, int world_size);
/// Reads the settings back from that file. nullopt: it does not exist, is for a different number of processes, or
/// contradicts the current settings; `note` gives the reason.
std::optional<Chosen> chosen_before(const config::Resolved& resolved, const std::string& path, int world_size,
                                    std::string& note);

}  // namespace tessera::plan
