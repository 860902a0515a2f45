#include <tessera/launch/agent/generation.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/affinity.h>
#include <tessera/launch/agent/rank_variables.h>

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

namespace tessera::launch {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds lived_long{60};
constexpr int stopped_code = static_cast<int>(ExitCode::stopped);

LivenessLimits limits_of(const LaunchOptions& options) {
  LivenessLimits limits;
  limits.heartbeat_timeout = options.heartbeat_timeout;
  limits.hang_timeout = options.hang_timeout;
  return limits;
}

}  // namespace

Generation::Generation(Host& host, const FleetPlan& plan, bool may_restart)
    : host_(host), plan_(plan), may_restart_(may_restart), orphans_(host.job), liveness_(limits_of(host.options)) {
  BoardHeader& header = host.board.header();
  for (int i = 0; i < host.board.slots(); ++i) clear(host.board.slot(i));
  header.world_size = plan.world_size;
  header.first_rank = plan.first_rank;
  header.generation = static_cast<std::uint32_t>(plan.generation);
  header.stop = 0;
  if (host.store) host.store->set_generation(plan.generation);
  try {
    for (int local_rank = 0; local_rank < plan.local_processes; ++local_rank) start(local_rank);
  } catch (...) {
    for (const LocalRank& rank : ranks_) host.watchdog.forget(rank.process.pid());
    throw;
  }
}

Generation::~Generation() {
  for (const LocalRank& rank : ranks_) {
    if (!rank.gone) host_.watchdog.forget(rank.process.pid());  // ~Process kills the group
  }
}

void Generation::start(int local_rank) {
  const LaunchOptions& options = host_.options;
  ProcessOptions process;
  process.command = host_.command;
  process.announce_fd = host_.watchdog.announce_fd();
  Inheritance inheritance;
  inheritance.job = host_.job;
  inheritance.board_fd = host_.board.fd();
  inheritance.secret_fd = host_.secret_fd.get();
  inheritance.configuration_fd = host_.configuration_fd.get();
  inheritance.store = host_.store_where;
  inheritance.memory = host_.memory.path();
  process.environment = rank_variables(local_rank, plan_, options, inheritance);
  for (const int fd : {inheritance.board_fd, inheritance.secret_fd, inheritance.configuration_fd}) {
    if (fd >= 0) process.inherited_fds.push_back(fd);
  }
  std::vector<int> cores;
  if (options.bind_cores) {
    const std::vector<int> usable = usable_cores();
    const std::vector<int> all =
        options.bind_core_list.empty() ? usable : parse_core_list(options.bind_core_list, usable);
    cores = share_cores(all, plan_.local_processes)[static_cast<std::size_t>(local_rank)];
  }
  const int rank = plan_.first_rank + local_rank;
  try {
    const CoreBinding binding(cores);
    ranks_.emplace_back(host_, std::move(process), rank, local_rank, plan_.generation);
  } catch (const InputError& error) {
    throw InputError(concat("rank ", rank, " of ", plan_.world_size, ": ", error.what()));
  }
}

std::set<pid_t> Generation::pids() const {
  std::set<pid_t> all;
  for (const LocalRank& rank : ranks_) all.insert(rank.process.pid());
  return all;
}

Outcome Generation::run() {
  // Another host may report who is to blame after all processes here have exited.
  while (undecided() || std::any_of(ranks_.begin(), ranks_.end(), [](const LocalRank& rank) { return !rank.gone; })) {
    wait();
    while (const int signal = host_.signals.next()) on_signal(signal);
    find_ended();
    judge_failures();
    look_at_liveness();
    look_at_fleet();
    if (host_.must_leave()) leave();
    if (host_.store) host_.store->turn();
    if (stacks_ && stacks_->turn()) tell_stacks();
    for (LocalRank& rank : ranks_) {
      if (rank.gone) continue;
      if (rank.status && !rank.process.group_is_alive()) rank.collect();
      if (!rank.gone && rank.kill_at && AgentClock::now() >= *rank.kill_at) rank.kill();
    }
    if (!stacks_) orphans_.collect(pids());
    host_.out.write_some();
    host_.err.write_some();
  }
  stacks_.reset();  // the collector's debuggers are children, too
  if (const int ended = orphans_.end(); ended > 0) {
    host_.say(ended == 1 ? "killed a process that a rank had left running in its own session"
                         : concat(ended, " processes that ranks had left running in their own sessions were killed"));
  }
  Outcome outcome;
  outcome.failed = failed_;
  outcome.stopped = stop_signal_ != 0;
  outcome.left = left_;
  outcome.done = done_;
  outcome.progress = made_progress();
  outcome.text = failure_;
  if (failed_) {
    // A signal that we sent while it was exiting does not reveal why it failed.
    const bool by_us = culprit_ != nullptr && culprit_->status &&
                       (culprit_->killed || (culprit_->hurried && WIFSIGNALED(*culprit_->status)));
    const bool its_own = culprit_ != nullptr && culprit_->status && !by_us && exit_code_of(*culprit_->status) != 0;
    outcome.code = its_own ? exit_code_of(*culprit_->status) : failure_code_;
  } else {
    const int code = stop_code_ != 0 ? stop_code_ : first_code_;
    outcome.code = stop_signal_ == SIGINT ? static_cast<int>(ExitCode::interrupted) : code;
  }
  return outcome;
}

std::size_t Generation::running() const {
  return static_cast<std::size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const LocalRank& rank) { return !rank.gone && !rank.status; }));
}

bool Generation::made_progress() const {
  const auto generation = static_cast<std::uint32_t>(plan_.generation);
  for (int i = 0; i < host_.board.slots(); ++i) {
    const RankSlot& slot = host_.board.slot(i);
    if (slot.generation.load() == generation && slot.first_step_ns.load() != 0) return true;
  }
  return AgentClock::now() - began_ >= lived_long;
}

/// Blocks until something happens: a signal, output, the exit of a rank, room for output, or a deadline.
void Generation::wait() {
  std::vector<pollfd> watched = {{host_.signals.fd(), POLLIN, 0}};
  Time until = next_look_;
  if (!host_.out.empty()) watched.push_back({host_.out.fd(), POLLOUT, 0});
  if (!host_.err.empty()) watched.push_back({host_.err.fd(), POLLOUT, 0});
  if (stacks_) stacks_->watch(watched);
  if (host_.store) {
    watched.push_back({host_.store->fd(), POLLIN, 0});
    if (const auto deadline = host_.store->deadline()) until = std::min(until, *deadline);
  }
  if (host_.fleet) watched.push_back({host_.fleet->event_fd(), POLLIN, 0});
  if (first_failure_ && !failed_) until = std::min(until, AgentClock::now() + milliseconds(10));
  for (LocalRank& rank : ranks_) {
    if (rank.gone) continue;
    if (rank.kill_at) until = std::min(until, *rank.kill_at);
    if (rank.status) {
      until = std::min(until, AgentClock::now() + milliseconds(20));  // poll() cannot wait for the end of a process
                                                                      // group
    } else {
      watched.push_back({rank.process.pidfd(), POLLIN, 0});
    }
    rank.watch_output(watched);
  }
  const auto left = std::chrono::duration_cast<milliseconds>(until - AgentClock::now()).count() + 1;
  ::poll(watched.data(), watched.size(), static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
}

void Generation::on_signal(int signal) {
  const Time now = AgentClock::now();
  const bool replaced = host_.options.by_launcher && host_.options.machine_rank > 0 && host_.options.max_restarts > 0;
  if (signal == SIGHUP && replaced) return host_.launcher_is_gone();
  if (stop_signal_ == 0 && !failed_) {
    stop_signal_ = signal;
    stopped_at_ = now;
    host_.say(concat(signal_name(signal), " received; asking ", running(), running() == 1 ? " rank" : " ranks",
                     " to stop (SIGKILL after ", host_.options.stop_seconds, " s, or at the next signal)"));
    ask_all(signal == SIGINT ? SIGINT : SIGTERM, now + clock_seconds(host_.options.stop_seconds));
    if (host_.fleet) host_.fleet->report(FleetEvent::stop, 128 + signal, concat("stopped by ", signal_name(signal)));
    return;
  }
  // timeout(1) and some batch systems send the same signal twice.
  if (stop_signal_ != 0 && now - stopped_at_ < milliseconds(500)) return;
  if (stop_signal_ == 0)
    stop_signal_ = signal;  // a request that arrives while a failure ends the ranks prevents the
                            // restart
  host_.say(concat(signal_name(signal), " received", failed_ ? "" : " again", "; killing the ranks"));
  for (LocalRank& rank : ranks_) {
    if (!rank.gone) rank.kill();
  }
}

/// Reacts to events of other hosts.
void Generation::look_at_fleet() {
  const auto event = host_.fleet ? host_.fleet->event() : std::nullopt;
  if (!event || event->machine == host_.options.machine_rank || failed_) return;
  if (event->kind != FleetEvent::stop) {
    failure_code_ = event->code;
    // When one terminal shows all agents, only the machine of the event reports it; machine 0 reports a lost one.
    const bool lost_here = event->kind == FleetEvent::lost && (event->machine <= 0 || host_.options.machine_rank == 0);
    fail(nullptr, event->text, host_.options.by_launcher && !lost_here);
  } else if (stop_signal_ == 0) {
    stop_signal_ = event->code == static_cast<int>(ExitCode::interrupted) ? SIGINT : SIGTERM;
    stopped_at_ = AgentClock::now();
    host_.say(concat(event->text, " on machine ", event->machine));
    ask_all(stop_signal_, stopped_at_ + clock_seconds(host_.options.stop_seconds));
  }
}

/// Ends this agent when its launcher is gone but the job continues.
void Generation::leave() {
  if (stop_signal_ != 0 || failed_) return;
  left_ = true;
  fail(nullptr, "the launcher that started this agent is gone, so the agent exits");
}

void Generation::ask_all(int signal, Time kill_at) {
  for (LocalRank& rank : ranks_) {
    if (!rank.gone) rank.ask(signal, kill_at);
  }
}

void Generation::find_ended() {
  for (LocalRank& rank : ranks_) {
    if (rank.gone) continue;
    rank.read_output(false);
    if (rank.status || !(rank.status = rank.process.status())) continue;
    rank.ended_ns = monotonic_ns();
    on_exit(rank);
  }
}

/// The process of a rank has exited (its children may still run).
void Generation::on_exit(LocalRank& rank) {
  rank.read_output(true);  // print its output before our own message
  const int code = exit_code_of(*rank.status);
  if (code != 0 && !failed_) {
    if (stop_signal_ != 0) {
      if (stop_code_ == 0) stop_code_ = code;
      const bool expected = code == stopped_code || code == 130 || code == 128 + SIGTERM || !rank.kill_at;
      if (!expected) host_.say(concat(rank.name(), " ", describe_status(*rank.status), " while stopping"));
    } else if (code == stopped_code && rank.on_board()) {
      stop_signal_ = SIGTERM;  // a Tessera rank was asked to stop and has saved: the others do the same
      stop_code_ = code;
      stopped_at_ = AgentClock::now();
      ask_all(SIGTERM, stopped_at_ + clock_seconds(host_.options.stop_seconds));
      if (host_.fleet) host_.fleet->report(FleetEvent::stop, 128 + SIGTERM, concat(rank.name(), " was asked to stop"));
    } else if (!first_failure_) {
      first_failure_ = AgentClock::now();
      first_code_ = code;
    }
  }
  // A rank's children are ended together with it.
  if (!rank.asked) rank.ask(SIGTERM, AgentClock::now() + clock_seconds(host_.options.grace_seconds * 0.75));
}

}  // namespace tessera::launch
