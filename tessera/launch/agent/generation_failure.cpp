/// \file
/// Handles the failure of a generation: which rank failed first, which is frozen, why the job hangs; reports it and
/// ends the ranks.

#include <tessera/base/clock.h>
#include <tessera/launch/agent/generation.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/watch/wait_graph.h>

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

namespace tessera::launch {
namespace {

using std::chrono::milliseconds;

/// How long to wait after a failure for a likelier culprit: a rank that fails on its own may exit after the ranks whose
/// connections it broke.
constexpr milliseconds settle_failed{60}, settle_victim{500}, settle_follower{5000};
/// The same with several hosts: long enough to learn of another agent's death (FleetOptions::ended_seconds and two
/// heartbeats).
constexpr milliseconds settle_victim_of_hosts{5000};
constexpr double failed_but_there =
    5;  ///< seconds after which a rank that has reported its failure but does not exit is killed
constexpr double restart_grace =
    0.4;  ///< seconds for ranks to exit before a restart; ranks that are saving get the full grace period
constexpr double stack_seconds = 30;  // gdb alone takes 10 s on a busy machine
constexpr std::size_t told_lines = 20, told_stack_lines = 200;

RankView view_of(const LocalRank& rank) {
  RankView view = view_of(rank.slot(), rank.rank, rank.process.pid());
  view.gone |= rank.status.has_value();
  if (const auto status = read_proc_status(rank.watched_pid())) view.process_state = status->state;
  return view;
}

std::string first_lines(const std::string& text, std::size_t count) {
  std::size_t end = 0;
  while (count-- > 0 && end != std::string::npos) end = text.find('\n', end == 0 ? 0 : end + 1);
  return text.substr(0, end);
}

}  // namespace

/// Returns a failing rank with what is known about it; nullopt if it is not failing.
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
    result.exit_code = rank.slot().exit_code.load();
  } else {
    for (const std::string& line : rank.output.last_lines(5)) result.words += line + "\n";
  }
  return result;
}

/// Reports the first failure once it is sufficiently certain.
void Generation::judge_failures() {
  if (failed_ || stop_signal_ != 0) return;
  std::vector<Candidate> candidates;
  std::vector<LocalRank*> who;
  for (LocalRank& rank : ranks_) {
    const auto one = candidate(rank);
    if (!one) continue;
    candidates.push_back(*one);
    who.push_back(&rank);
    const bool stays = !one->status && one->verdict_ns != 0 && seconds_since(one->verdict_ns) > failed_but_there;
    if (stays && !first_failure_) first_failure_ = AgentClock::now();
  }
  if (!first_failure_ || candidates.empty()) return;
  const std::size_t first = first_failure(candidates);
  const Guilt sure = guilt(candidates[first]);
  const auto waited = AgentClock::now() - *first_failure_;
  const bool all_seen = running() == 0;
  const auto settle = sure == Guilt::killed     ? milliseconds(0)
                      : sure == Guilt::victim   ? (host_.fleet ? settle_victim_of_hosts : settle_victim)
                      : sure == Guilt::follower ? settle_follower
                                                : settle_failed;
  const bool elsewhere = host_.fleet && (sure == Guilt::victim || sure == Guilt::follower);
  if ((!all_seen || elsewhere) && waited < settle) return;
  // A rank that has reported why it fails exits by itself, and its exit code becomes the job's: it may still be
  // finishing a write, while others that only learned of the failure have exited already.
  const bool ending = !candidates[first].status && candidates[first].verdict_ns != 0 &&
                      seconds_since(candidates[first].verdict_ns) < host_.options.grace_seconds;
  if (ending) return;
  LocalRank& rank = *who[first];
  std::string text =
      concat(rank.name(), " ", rank.status ? describe_status(*rank.status) : "failed, but does not exit");
  if (rank.status && WIFSIGNALED(*rank.status) && WTERMSIG(*rank.status) == SIGKILL) {
    const std::string memory = host_.oom.explain(rank.process.pid());
    if (!memory.empty()) text += concat(": ", memory);
  }
  if (rank.on_board() && rank.status) {
    const double late = static_cast<double>(rank.ended_ns - rank.slot().heartbeat_ns.load()) * 1e-9;
    text += concat(" (seen ", format_real(std::max(late, 0.0), 2), " s after its last heartbeat)");
  }
  if (sure == Guilt::victim) {
    std::string left;  // a peer that has exited as if its work were done
    for (const LocalRank& other : ranks_)
      if (other.status && exit_code_of(*other.status) == 0) left += (left.empty() ? "" : ", ") + other.name();
    text += left.empty()
                ? "; it reports that a peer is gone, but no other rank of this host had failed"
                : concat("; it reports that a peer is gone: ", left, " exited with code 0 in the middle of the job");
  }
  if (candidates[first].exit_code != 0) failure_code_ = candidates[first].exit_code;
  fail(&rank, text);
}

void Generation::look_at_liveness() {
  const Time now = AgentClock::now();
  if (now < next_look_) return;
  next_look_ = now + clock_seconds(std::max(0.01, host_.options.monitor_interval));
  std::vector<WatchedRank> watched;
  for (const LocalRank& rank : ranks_) {
    const bool ended = rank.status.has_value() || rank.gone;
    watched.push_back({rank.rank, rank.local_rank, ended ? 0 : rank.watched_pid(), ended});
  }
  if (now >= next_oom_look_) {
    next_oom_look_ = now + clock_seconds(1);
    for (const LocalRank& rank : ranks_) {
      if (!rank.status && !rank.gone) host_.oom.look(rank.process.pid());
    }
  }
  const auto findings =
      liveness_.look(host_.board, static_cast<std::uint32_t>(plan_.generation), watched, monotonic_ns());
  if (failed_ || first_failure_ || stacks_) return;
  const bool stopping = stop_signal_ != 0;  // ranks are saving and exiting: only a stopped one delays the others
  if (!stopping) look_at_arrivals(now);
  for (const LivenessFinding& finding : findings) {
    if (stopping && finding.kind != LivenessFinding::stopped && finding.kind != LivenessFinding::frozen) continue;
    if (finding.kind == LivenessFinding::hang) return on_hang(finding);
    if (finding.kind == LivenessFinding::report) {
      host_.say(finding.text);
      continue;
    }
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(),
                                   [&](const LocalRank& each) { return each.rank == finding.ranks.at(0); });
    if (finding.kind != LivenessFinding::frozen || host_.options.only_report) {
      host_.say(finding.text);
      if (finding.kind != LivenessFinding::paused) tell_circumstances(*rank, false);
      continue;
    }
    fail(&*rank, finding.text);
    rank->kill();  // a stopped process does not receive SIGTERM
    return;
  }
}

/// Whether the work is done: every rank of this host has left the job, or has exited successfully.
bool Generation::work_is_done() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const LocalRank& rank) {
    if (rank.status && !rank.killed) return exit_code_of(*rank.status) == 0;
    return rank.on_board() && rank.slot().state.load() == RankState::left;
  });
}

void Generation::look_at_arrivals(Time now) {
  std::vector<Arrivals::Rank> ranks;
  for (const LocalRank& rank : ranks_) {
    if (rank.status || rank.gone) continue;
    const bool came = rank.on_board();
    ranks.push_back({rank.rank, rank.process.pid(), came, came && rank.slot().state.load() == RankState::joining});
  }
  if (const auto text = arrivals_.look(ranks, now)) host_.say(*text);
}

void Generation::on_hang(const LivenessFinding& finding) {
  std::vector<RankView> views;
  for (const LocalRank& rank : ranks_) {
    if (rank.on_board()) views.push_back(view_of(rank));
  }
  const WaitVerdict verdict = find_culprit(views, monotonic_ns());
  hang_ = concat("the job hangs: ", verdict.text);
  host_.say(concat(finding.text, ": ", verdict.text, "; collecting stacks"));
  host_.err.write_some();
  std::vector<StackDump::Target> targets;
  const auto add = [&](bool guilty) {
    for (const LocalRank& rank : ranks_) {
      if (rank.status || rank.gone) continue;
      const bool blamed =
          std::find(verdict.culprits.begin(), verdict.culprits.end(), rank.rank) != verdict.culprits.end();
      if (blamed == guilty) targets.push_back({rank.rank, rank.watched_pid()});
    }
  };
  add(true);
  add(false);
  stacks_.emplace(targets, stack_seconds, host_.watchdog);
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

void Generation::fail(LocalRank* culprit, const std::string& text, bool told) {
  done_ = work_is_done();
  failed_ = true;
  culprit_ = culprit;
  failure_ = text;
  const bool others = running() > (culprit != nullptr && !culprit->status ? 1u : 0u);
  const std::string ending = !others ? "" : culprit != nullptr ? "; ending the other ranks" : "; ending all ranks";
  told ? host_.note(concat(text, ending)) : host_.say(concat(text, ending));
  if (culprit != nullptr && culprit->status) failure_code_ = exit_code_of(*culprit->status);
  if (host_.fleet && !left_) host_.fleet->report(FleetEvent::failure, failure_code_, text);
  BoardHeader& header = host_.board.header();
  write_text(header.stop_reason, text);
  header.stop.store(1, std::memory_order_release);
  // A quarter of the time is reserved for the kernel to deliver SIGKILL.
  const double grace = host_.options.grace_seconds * 0.75;
  const Time now = AgentClock::now();
  for (LocalRank& rank : ranks_) {
    if (rank.gone) continue;
    const bool saves = rank.on_board() && rank.slot().state.load() == RankState::saving;
    rank.ask(SIGTERM, now + clock_seconds(may_restart_ && !saves ? std::min(grace, restart_grace) : grace));
  }
  const bool bad_input = culprit != nullptr && failure_code_ == static_cast<int>(ExitCode::bad_input);
  if (culprit != nullptr && !bad_input) tell_circumstances(*culprit, plan_.world_size > 1);
}

void Generation::tell_circumstances(const LocalRank& rank, bool last_lines) {
  auto lines = last_lines ? rank.output.last_lines(told_lines) : std::vector<std::string>{};
  if (rank.on_board()) {
    const RankView view = view_of(rank);
    const bool told = view.state == RankState::failed;
    host_.say_lines(
        concat(told ? "" : concat("it was ", state_name(view.state), ": "), describe_place(view, monotonic_ns())));
    const std::string error = read_text(rank.slot().error);
    const bool shown = told && rank.output.has_shown(error);
    if (told && !shown) host_.say_lines(concat("it said: ", error));
    if (shown && !error.empty())  // do not print it twice
      std::erase_if(lines, [&](const std::string& line) { return line.find(first_part(error)) != std::string::npos; });
  }
  if (lines.empty()) return;
  host_.say_lines(concat("its last ", lines.size() == 1 ? "line" : "lines",
                         rank.output.log_path().empty() ? "" : concat(" (", rank.output.log_path(), ")"), ":"));
  for (const std::string& line : lines) host_.say_lines(concat("| ", line));
}

}  // namespace tessera::launch
