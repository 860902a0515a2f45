#include <tessera/launch/agent/launcher.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/generation.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/fleet/host.h>

namespace tessera::launch {

namespace {

constexpr int max_processes = 4096;  // watchdog.cpp holds as many groups

/// Bad input fails again, and a request to stop has been met.
bool worth_a_restart(const Outcome& outcome) {
  return !outcome.stopped && outcome.code != static_cast<int>(ExitCode::bad_input) &&
         outcome.code != static_cast<int>(ExitCode::stopped) && outcome.code != static_cast<int>(ExitCode::interrupted);
}

/// What comes after a generation: the plan of the next one, or the end with outcome.code, on which all hosts agree.
std::optional<FleetPlan> next_plan(Host& host, FleetPlan plan, Outcome& outcome) {
  const bool may = plan.generation < host.options.max_restarts && worth_a_restart(outcome);
  if (host.fleet) {
    const FleetVerdict verdict = host.fleet->agree({outcome.code, may});
    if (verdict.restart) return host.fleet->plan();
    outcome.code = verdict.code;
    return std::nullopt;
  }
  if (!outcome.failed || !may) return std::nullopt;
  ++plan.generation;
  plan.master_port = choose_port(host.options.master_addr, host.options.master_port);
  return plan;
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
  for (std::optional<FleetPlan> plan = host.first_plan(); plan;) {
    outcome = Generation(host, *plan, plan->generation < options.max_restarts).run();
    plan = next_plan(host, *plan, outcome);
    if (plan) host.say(concat("restarting all ranks (restart ", plan->generation, " of ", options.max_restarts, ")"));
  }
  host.out.flush(5);
  host.err.flush(5);
  return outcome.code;
}

}  // namespace tessera::launch
