#include <tessera/launch/agent/rank_variables.h>

#include <tessera/launch/agent/affinity.h>

#include <algorithm>
#include <cstdlib>

namespace tessera::launch {

Environment rank_variables(int local_rank, const FleetPlan& plan, const LaunchOptions& options,
                           const Inheritance& inheritance) {
  const auto text = [](int number) { return std::to_string(number); };
  const auto descriptor = [&](int fd) { return fd >= 0 ? std::optional(text(fd)) : std::nullopt; };
  const std::string rank = text(plan.first_rank + local_rank), world = text(plan.world_size);
  const std::string machine = text(options.machine_rank), restarts = text(plan.generation);
  Environment result = {
      {"RANK", rank},
      {"LOCAL_RANK", text(local_rank)},
      {"WORLD_SIZE", world},
      {"LOCAL_WORLD_SIZE", text(plan.local_processes)},
      {"GROUP_RANK", machine},
      {"GROUP_WORLD_SIZE", text(options.num_machines)},
      {"NODE_RANK", machine},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", world},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", plan.master_addr},
      {"MASTER_PORT", text(plan.master_port)},
      {"TESSERA_LAUNCHER", "1"},
      {"TESSERA_GENERATION", restarts},
      {"TESSERA_JOB", inheritance.job},
      {"TESSERA_BOARD_FD", descriptor(inheritance.board_fd)},
      {"TESSERA_SECRET_FD", descriptor(inheritance.secret_fd)},
      {"TESSERA_CONFIG_FD", descriptor(inheritance.configuration_fd)},
      {"TESSERA_STORE", inheritance.store.empty() ? std::nullopt : std::optional(inheritance.store)},
      {"TESSERA_MEMORY", inheritance.memory.empty() ? std::nullopt : std::optional(inheritance.memory)},
      {"TORCHELASTIC_RESTART_COUNT", restarts},
      {"TORCHELASTIC_MAX_RESTARTS", text(options.max_restarts)},
      // Hides the variables of an outer agent (torchrun --no-python tessera launch ...), because it is not the ranks'
      // agent.
      {"TORCHELASTIC_USE_AGENT_STORE", std::nullopt},
      {"TORCHELASTIC_RUN_ID", std::nullopt},
      {"TORCHELASTIC_ERROR_FILE", std::nullopt}};
  if (options.threads_per_process > 0) {
    result.emplace_back("OMP_NUM_THREADS", text(options.threads_per_process));
  } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    const int cores = static_cast<int>(usable_cores().size());
    result.emplace_back("OMP_NUM_THREADS", text(std::max(1, cores / plan.local_processes)));
  }
  return result;
}

}  // namespace tessera::launch
