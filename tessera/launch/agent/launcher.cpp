#include <tessera/launch/agent/launcher.h>

#include <tessera/base/error.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/generation.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/agent/restart_pause.h>
#include <tessera/launch/fleet/host.h>

#include <poll.h>

#include <csignal>

namespace tessera::launch {

namespace {

constexpr int max_processes = 4096;  // watchdog.cpp has room for this many groups

/// No restart: bad input would fail again, a request to stop has been fulfilled, and finished work need not be
/// repeated.
bool worth_a_restart(const Outcome& outcome) {
  return !outcome.stopped && !outcome.done && outcome.code != static_cast<int>(ExitCode::bad_input) &&
         outcome.code != static_cast<int>(ExitCode::stopped) && outcome.code != static_cast<int>(ExitCode::interrupted);
}

/// Decides what follows a generation: returns the plan of the next one, or nullopt with the final outcome.code, on
/// which all hosts agree.
std::optional<FleetPlan> next_plan(Host& host, FleetPlan plan, Outcome& outcome) {
  const bool may = plan.generation < host.options.max_restarts && worth_a_restart(outcome);
  if (outcome.stopped) host.stay();
  if (outcome.left) return std::nullopt;  // the others consider this machine lost
  if (host.fleet) {
    const FleetVerdict verdict = host.fleet->agree({outcome.code, may, outcome.text});
    if (verdict.restart) return host.fleet->plan();
    outcome.code = verdict.code;
    return std::nullopt;
  }
  if (!outcome.failed || !may) return std::nullopt;
  ++plan.generation;
  return plan;
}

/// Waits before a restart while serving the store and our reader. False: a signal is pending in host.signals.
bool wait_before_restart(Host& host, double seconds) {
  const auto until = AgentClock::now() + clock_seconds(seconds);
  while (AgentClock::now() < until) {
    host.out.write_some();
    host.err.write_some();
    if (host.store) host.store->turn();
    pollfd watched[] = {{host.signals.fd(), POLLIN, 0}, {host.store ? host.store->fd() : -1, POLLIN, 0}};
    ::poll(watched, 2, 50);
    if ((watched[0].revents & POLLIN) != 0) return false;
  }
  return true;
}

/// Flushes the ranks' output before the agent exits, as long as it may still be read: until a pipe is closed, or a
/// signal asks to stop.
void show_the_rest(Host& host) {
  for (OutputSink* sink : {&host.out, &host.err}) {
    pollfd asked{host.signals.fd(), POLLIN, 0};
    while (!sink->empty() && ::poll(&asked, 1, 0) == 0) sink->flush(0.2);
  }
}

}  // namespace

int run(const std::vector<std::string>& command, const LaunchOptions& options) {
  ignore_file_limit_signal();  // otherwise the signal would kill the agent without any message
  ::signal(SIGPIPE, SIG_IGN);  // the job continues without a reader; ranks get the default handler back
  if (command.empty()) throw InputError("nothing to launch: no program was given");
  if (options.num_processes < 1 || options.num_processes > max_processes) {
    throw InputError(
        concat("num_processes is ", options.num_processes, "; one host runs 1 to ", max_processes, " ranks"));
  }
  Host host(command, options);
  Outcome outcome;
  RestartPause pause(options.restart_pause, options.restart_pause_most);
  for (std::optional<FleetPlan> plan = host.first_plan(); plan;) {
    outcome = Generation(host, *plan, plan->generation < options.max_restarts).run();
    plan = next_plan(host, *plan, outcome);
    if (!plan) break;
    const double seconds = pause.next(outcome.progress);
    host.say_for_all(concat(
        "restarting all ranks (restart ", plan->generation, " of ", options.max_restarts, ")",
        seconds > 0 ? concat(" in ", format_real(seconds, 3), " s: the previous start failed before its first step")
                    : ""));
    const bool waited = wait_before_restart(host, seconds);
    if (host.fleet) continue;  // the next generation receives the signal and reports it to the other hosts
    if (const int signal = waited ? 0 : host.signals.next()) {
      host.say(concat(signal_name(signal), " received; not restarting"));
      if (signal == SIGINT) outcome.code = static_cast<int>(ExitCode::interrupted);
      break;
    }
    plan->master_port = choose_port(options.master_addr, options.master_port);
  }
  show_the_rest(host);
  return outcome.code;
}

}  // namespace tessera::launch
