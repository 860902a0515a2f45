#include <tessera/launch/launcher.h>

#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/generation.h>
#include <tessera/launch/host.h>
#include <tessera/launch/ports.h>

namespace tessera::launch {

namespace {

constexpr int max_processes = 4096;  // guardian.cpp holds as many groups

/// What a person would call this job.
std::string job_text(const std::vector<std::string>& command, const LaunchOptions& options) {
  return options.job.empty() ? join(command, " ") : options.job;
}

FleetPlan plan_of_one_host(const LaunchOptions& options, int generation) {
  FleetPlan plan;
  plan.generation = generation;
  plan.world_size = plan.local_processes = options.num_processes;
  plan.master_addr = options.master_addr;
  plan.master_port = choose_port(options.master_addr, options.master_port);
  return plan;
}

/// Bad input fails again, and a request to stop has been met.
bool worth_a_restart(const Outcome& outcome) {
  return outcome.failed && !outcome.stopped && outcome.code != static_cast<int>(ExitCode::bad_input) &&
         outcome.code != static_cast<int>(ExitCode::stopped) && outcome.code != static_cast<int>(ExitCode::interrupted);
}

}  // namespace

int run(const std::vector<std::string>& command, const LaunchOptions& options) {
  if (command.empty()) throw InputError("nothing to launch: no program was given");
  if (options.num_processes < 1 || options.num_processes > max_processes) {
    throw InputError(
        concat("num_processes is ", options.num_processes, ": one host runs 1 to ", max_processes, " ranks"));
  }
  Host host(command, options);
  Outcome outcome;
  for (int generation = 0;; ++generation) {
    const FleetPlan plan = plan_of_one_host(options, generation);
    if (!host.board) {
      host.board = Board::create(plan.local_processes, plan.first_rank, plan.world_size, job_text(command, options));
      host.board.header().agent_pid = ::getpid();
    }
    outcome = Generation(host, plan, generation < options.max_restarts).run();
    if (!worth_a_restart(outcome) || generation >= options.max_restarts) break;
    host.say(concat("restarting all ranks (restart ", generation + 1, " of ", options.max_restarts, ")"));
  }
  host.out.flush(5);
  host.err.flush(5);
  return outcome.code;
}

}  // namespace tessera::launch
