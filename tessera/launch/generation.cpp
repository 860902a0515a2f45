#include <tessera/launch/generation.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/affinity.h>
#include <tessera/launch/rank_variables.h>
#include <tessera/launch/wait_graph.h>

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

namespace tessera::launch {
namespace {

using std::chrono::milliseconds;

constexpr int stopped_code = static_cast<int>(ExitCode::stopped);
/// How long a failure waits for a surer one: a rank of its own accord may end after those whose connections it broke.
constexpr milliseconds settle_failed{60}, settle_victim{500};
constexpr double failed_but_there = 5;      ///< seconds after which a rank that has told its failure but does not end is ended
constexpr double restart_grace = 0.4;       ///< seconds for ranks to end before a restart; those that save get the whole grace
constexpr double stack_seconds = 10;
constexpr std::size_t told_lines = 20, told_stack_lines = 200;

AgentClock::duration seconds(double value) {
  return std::chrono::duration_cast<AgentClock::duration>(std::chrono::duration<double>(value));
}

LifeLimits limits_of(const LaunchOptions& options) {
  LifeLimits limits;
  limits.heartbeat_timeout = options.heartbeat_timeout;
  limits.hang_timeout = options.hang_timeout;
  return limits;
}

RankView view_of(const LocalRank& rank) {
  const RankSlot& slot = rank.slot();
  RankView view;
  view.rank = rank.rank;
  view.pid = rank.process.pid();
  view.state = slot.state.load();
  view.phase = read_text(slot.phase);
  view.step = slot.step.load();
  view.entries = last_entries(slot);
  if (const auto status = read_proc_status(rank.watched_pid())) view.process_state = status->state;
  return view;
}

std::string first_lines(const std::string& text, std::size_t count) {
  std::size_t end = 0;
  while (count-- > 0 && end != std::string::npos) end = text.find('\n', end == 0 ? 0 : end + 1);
  return text.substr(0, end);
}

}  // namespace

Generation::Generation(Host& host, const FleetPlan& plan, bool may_restart)
    : host_(host), plan_(plan), may_restart_(may_restart), life_(limits_of(host.options)) {
  BoardHeader& header = host.board.header();
  for (int i = 0; i < host.board.slots(); ++i) clear(host.board.slot(i));
  header.world_size = plan.world_size;
  header.first_rank = plan.first_rank;
  header.generation = static_cast<std::uint32_t>(plan.generation);
  header.stop = 0;
  if (host.store) host.store->set_generation(plan.generation);
  try {
    BoundSocket store;
    if (host.options.pass_store_socket) store = listen_on(plan.master_addr, plan.master_port);
    for (int local_rank = 0; local_rank < plan.local_processes; ++local_rank) start(local_rank, store);
  } catch (...) {
    for (const LocalRank& rank : ranks_) host.guardian.forget(rank.process.pid());
    throw;
  }
}

Generation::~Generation() {
  for (const LocalRank& rank : ranks_) {
    if (!rank.gone) host_.guardian.forget(rank.process.pid());  // ~Process kills the group
  }
}

void Generation::start(int local_rank, BoundSocket& store) {
  const LaunchOptions& options = host_.options;
  ProcessOptions process;
  process.command = host_.command;
  process.announce_fd = host_.guardian.announce_fd();
  Inheritance inheritance;
  inheritance.job = host_.job;
  inheritance.board_fd = host_.board.fd();
  inheritance.secret_fd = host_.secret_fd.get();
  inheritance.store = host_.store_where;
  if (local_rank == 0) inheritance.store_fd = store.fd.get();
  process.environment = rank_variables(local_rank, plan_, options, inheritance);
  for (const int fd : {inheritance.board_fd, inheritance.secret_fd, inheritance.store_fd}) {
    if (fd >= 0) process.inherited_fds.push_back(fd);
  }
  std::vector<int> cores;
  if (options.bind_cores) {
    const std::vector<int> usable = usable_cores();
    const std::vector<int> all = options.bind_core_list.empty() ? usable : parse_core_list(options.bind_core_list, usable);
    cores = share_cores(all, plan_.local_processes)[static_cast<std::size_t>(local_rank)];
  }
  const int rank = plan_.first_rank + local_rank;
  try {
    const CoreBinding binding(cores);
    ranks_.emplace_back(host_, std::move(process), rank, local_rank, plan_.generation);
  } catch (const InputError& error) {
    throw InputError(concat("rank ", rank, " of ", plan_.world_size, ": ", error.what()));
  }
  store.fd.reset();  // rank 0 has it; were it open here too, clients of a dead rank 0 would wait instead of failing
}

Outcome Generation::run() {
  while (std::any_of(ranks_.begin(), ranks_.end(), [](const LocalRank& rank) { return !rank.gone; })) {
    wait();
    while (const int signal = host_.signals.next()) on_signal(signal);
    find_ended();
    judge_failures();
    look_at_life();
    look_at_fleet();
    if (host_.store) host_.store->turn();
    if (stacks_ && stacks_->turn()) tell_stacks();
    for (LocalRank& rank : ranks_) {
      if (rank.gone) continue;
      if (rank.status && !rank.process.group_is_alive()) rank.collect();
      if (!rank.gone && rank.kill_at && AgentClock::now() >= *rank.kill_at) rank.kill();
    }
    host_.out.write_some();
    host_.err.write_some();
  }
  Outcome outcome;
  outcome.failed = failed_;
  outcome.stopped = stop_signal_ != 0;
  outcome.text = failure_;
  if (failed_) {
    const bool its_own =
        culprit_ != nullptr && culprit_->status && !culprit_->killed && exit_code_of(*culprit_->status) != 0;
    outcome.code = its_own ? exit_code_of(*culprit_->status) : failure_code_;
  } else {
    outcome.code = stop_signal_ == SIGINT ? static_cast<int>(ExitCode::interrupted) : stop_code_;
  }
  return outcome;
}

std::size_t Generation::running() const {
  return static_cast<std::size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const LocalRank& rank) { return !rank.gone && !rank.status; }));
}

/// Until something happens: a signal, output, the end of a rank, room for output, or a deadline.
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
      until = std::min(until, AgentClock::now() + milliseconds(20));  // the end of a process group cannot be polled for
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
  if (stop_signal_ == 0 && !failed_) {
    stop_signal_ = signal;
    stopped_at_ = now;
    host_.say(concat(signal_name(signal), " received; asking ", running(), running() == 1 ? " rank" : " ranks",
                     " to stop (SIGKILL after ", host_.options.stop_seconds, " s, or at the next signal)"));
    ask_all(signal == SIGINT ? SIGINT : SIGTERM, now + seconds(host_.options.stop_seconds));
    if (host_.fleet) host_.fleet->report(FleetEvent::stop, 128 + signal, concat("stopped by ", signal_name(signal)));
    return;
  }
  // timeout(1) and some batch systems send the same request twice.
  if (stop_signal_ != 0 && now - stopped_at_ < milliseconds(500)) return;
  if (stop_signal_ == 0) stop_signal_ = signal;  // while a failure ends the ranks: no restart follows
  host_.say(concat(signal_name(signal), " received", failed_ ? "" : " again", "; killing the ranks"));
  for (LocalRank& rank : ranks_) {
    if (!rank.gone) rank.kill();
  }
}

/// What happens on other hosts.
void Generation::look_at_fleet() {
  const auto event = host_.fleet ? host_.fleet->event() : std::nullopt;
  if (!event || event->machine == host_.options.machine_rank || failed_) return;
  if (event->kind != FleetEvent::stop) {
    failure_code_ = event->code;
    fail(nullptr, event->text);
  } else if (stop_signal_ == 0) {
    stop_signal_ = event->code == static_cast<int>(ExitCode::interrupted) ? SIGINT : SIGTERM;
    stopped_at_ = AgentClock::now();
    host_.say(concat(event->text, " on machine ", event->machine));
    ask_all(stop_signal_, stopped_at_ + seconds(host_.options.stop_seconds));
  }
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

/// The process of a rank has ended (what it started may not have).
void Generation::on_exit(LocalRank& rank) {
  rank.read_output(true);  // its last words before ours
  const int code = exit_code_of(*rank.status);
  if (code != 0 && !failed_) {
    if (stop_signal_ != 0) {
      if (stop_code_ == 0) stop_code_ = code;
      const bool expected = code == stopped_code || code == 130 || code == 128 + SIGTERM || !rank.kill_at;
      if (!expected) host_.say(concat(rank.name(), " ", describe_status(*rank.status), " while stopping"));
    } else if (code == stopped_code && (host_.options.pass_store_socket || rank.on_board())) {
      stop_signal_ = SIGTERM;  // one of ours was asked to stop and has saved: the others do the same
      stop_code_ = code;
      stopped_at_ = AgentClock::now();
      ask_all(SIGTERM, stopped_at_ + seconds(host_.options.stop_seconds));
      if (host_.fleet) host_.fleet->report(FleetEvent::stop, 128 + SIGTERM, concat(rank.name(), " was asked to stop"));
    } else if (!first_failure_) {
      first_failure_ = AgentClock::now();
    }
  }
  // A rank that is over takes what it started with it.
  if (!rank.asked) rank.ask(SIGTERM, AgentClock::now() + seconds(host_.options.grace_seconds * 0.75));
}

/// A rank that fails, as far as can be seen now.
std::optional<Candidate> Generation::candidate(const LocalRank& rank) const {
  const bool told = rank.on_board() && rank.slot().state.load() == RankState::failed;
  if (!told && (!rank.status || exit_code_of(*rank.status) == 0)) return std::nullopt;
  Candidate result;
  result.rank = rank.rank;
  result.status = rank.status;
  result.noticed_ns = rank.status ? rank.ended_ns : monotonic_ns();
  if (told) {
    result.verdict_ns = rank.slot().verdict_ns.load();
    result.words = read_text(rank.slot().error);
  } else {
    for (const std::string& line : rank.output.last_lines(5)) result.words += line + "\n";
  }
  return result;
}

/// Names the first failure, once it is sure enough.
void Generation::judge_failures() {
  if (failed_ || stop_signal_ != 0) return;
  std::vector<Candidate> candidates;
  std::vector<LocalRank*> who;
  for (LocalRank& rank : ranks_) {
    const auto one = candidate(rank);
    if (!one) continue;
    candidates.push_back(*one);
    who.push_back(&rank);
    const bool stays = !one->status && one->verdict_ns != 0 &&
                       static_cast<double>(monotonic_ns() - one->verdict_ns) * 1e-9 > failed_but_there;
    if (stays && !first_failure_) first_failure_ = AgentClock::now();
  }
  if (!first_failure_ || candidates.empty()) return;
  const std::size_t first = first_failure(candidates);
  const Guilt sure = guilt(candidates[first]);
  const auto waited = AgentClock::now() - *first_failure_;
  const bool all_seen = running() == 0;
  const auto settle = sure == Guilt::killed ? milliseconds(0) : sure == Guilt::victim ? settle_victim : settle_failed;
  if (!all_seen && waited < settle) return;
  LocalRank& rank = *who[first];
  std::string text = concat(rank.name(), " ", rank.status ? describe_status(*rank.status) : "failed, but does not end");
  if (rank.status && WIFSIGNALED(*rank.status) && WTERMSIG(*rank.status) == SIGKILL) {
    const std::string memory = host_.oom.explain(rank.process.pid());
    if (!memory.empty()) text += concat(": ", memory);
  }
  if (rank.on_board() && rank.status) {
    const double late = static_cast<double>(rank.ended_ns - rank.slot().heartbeat_ns.load()) * 1e-9;
    text += concat(" (seen ", format_real(std::max(late, 0.0), 2), " s after its last heartbeat)");
  }
  if (sure == Guilt::victim) text += "; it says that a peer is gone, but no other rank of this host failed before";
  fail(&rank, text);
}

void Generation::look_at_life() {
  const Time now = AgentClock::now();
  if (now < next_look_) return;
  next_look_ = now + seconds(std::max(0.01, host_.options.monitor_interval));
  std::vector<WatchedRank> watched;
  for (const LocalRank& rank : ranks_) {
    if (!rank.status && !rank.gone) watched.push_back({rank.rank, rank.local_rank, rank.watched_pid()});
  }
  if (now >= next_oom_look_) {
    next_oom_look_ = now + seconds(1);
    for (const WatchedRank& rank : watched) host_.oom.look(rank.pid);
  }
  const auto findings = life_.look(host_.board, static_cast<std::uint32_t>(plan_.generation), watched, monotonic_ns());
  if (failed_ || first_failure_ || stacks_ || stop_signal_ != 0) return;
  for (const LifeFinding& finding : findings) {
    if (finding.kind == LifeFinding::hang) return on_hang(finding);
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                   [&](const LocalRank& each) { return each.rank == finding.ranks.at(0); });
    if (finding.kind == LifeFinding::paused || host_.options.only_report) {
      host_.say(finding.text);
      if (finding.kind == LifeFinding::frozen) tell_circumstances(*rank, false);
      continue;
    }
    fail(&*rank, finding.text);
    rank->kill();  // a stopped process does not hear SIGTERM
    return;
  }
}

void Generation::on_hang(const LifeFinding& finding) {
  std::vector<RankView> views;
  for (const LocalRank& rank : ranks_) {
    if (!rank.status && !rank.gone && rank.on_board()) views.push_back(view_of(rank));
  }
  const WaitVerdict verdict = find_culprit(views, monotonic_ns());
  hang_ = concat("the job hangs: ", verdict.text);
  host_.say(concat(finding.text, ": ", verdict.text, "; collecting stacks"));
  host_.err.write_some();
  std::vector<StackDump::Target> targets;
  const auto add = [&](bool guilty) {
    for (const LocalRank& rank : ranks_) {
      if (rank.status || rank.gone) continue;
      const bool blamed = std::find(verdict.culprits.begin(), verdict.culprits.end(), rank.rank) != verdict.culprits.end();
      if (blamed == guilty) targets.push_back({rank.rank, rank.watched_pid()});
    }
  };
  add(true);
  add(false);
  stacks_.emplace(targets, stack_seconds, host_.guardian);
}

void Generation::tell_stacks() {
  std::string all;
  const auto stacks = stacks_->take();
  for (const StackDump::Stacks& one : stacks) all += concat("rank ", one.rank, ":\n", one.text);
  stacks_.reset();
  const std::string path = host_.write_report(concat("stacks-", plan_.generation, ".txt"), concat(hang_, "\n\n", all));
  if (!path.empty()) {
    host_.say(concat("stacks of all ranks: ", path));
  } else {
    host_.say_lines(first_lines(all, told_stack_lines));
  }
  if (!failed_ && !first_failure_ && stop_signal_ == 0 && !host_.options.only_report) fail(nullptr, hang_);
}

void Generation::fail(LocalRank* culprit, const std::string& text) {
  failed_ = true;
  culprit_ = culprit;
  failure_ = text;
  const bool others = running() > (culprit != nullptr && !culprit->status ? 1u : 0u);
  const std::string ending = !others ? "" : culprit != nullptr ? "; ending the other ranks" : "; ending all ranks";
  host_.say(concat(text, ending));
  if (culprit != nullptr && culprit->status) failure_code_ = exit_code_of(*culprit->status);
  if (host_.fleet) host_.fleet->report(FleetEvent::failure, failure_code_, text);
  BoardHeader& header = host_.board.header();
  write_text(header.stop_reason, text);
  header.stop.store(1, std::memory_order_release);
  // A quarter of the time is kept for the kernel: SIGKILL takes effect when it gets to it.
  const double grace = host_.options.grace_seconds * 0.75;
  const Time now = AgentClock::now();
  for (LocalRank& rank : ranks_) {
    if (rank.gone) continue;
    const bool saves = rank.on_board() && rank.slot().state.load() == RankState::saving;
    rank.ask(SIGTERM, now + seconds(may_restart_ && !saves ? std::min(grace, restart_grace) : grace));
  }
  const bool bad_input = culprit != nullptr && culprit->status && failure_code_ == static_cast<int>(ExitCode::bad_input);
  if (culprit != nullptr && !bad_input) tell_circumstances(*culprit, plan_.world_size > 1);
}

void Generation::tell_circumstances(const LocalRank& rank, bool last_lines) {
  if (rank.on_board()) {
    const RankView view = view_of(rank);
    const bool told = view.state == RankState::failed;
    host_.say_lines(concat(told ? "" : concat("it was ", state_name(view.state), ": "), describe_place(view, monotonic_ns())));
    if (told) host_.say_lines(concat("it said: ", read_text(rank.slot().error)));
  }
  const auto lines = last_lines ? rank.output.last_lines(told_lines) : std::vector<std::string>{};
  if (lines.empty()) return;
  host_.say_lines(concat("its last ", lines.size() == 1 ? "line" : "lines",
                         rank.output.log_path().empty() ? "" : concat(" (", rank.output.log_path(), ")"), ":"));
  for (const std::string& line : lines) host_.say_lines(concat("| ", line));
}

}  // namespace tessera::launch
