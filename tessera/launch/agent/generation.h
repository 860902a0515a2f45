#pragma once
/// \file
/// One life of the ranks of this host: from their start to the moment when nothing of them is left. Whatever ends it
/// early (a death, a freeze, a hang, a request to stop) is told here; whether another generation follows is not decided
/// here (launcher.cpp).

#include <tessera/launch/agent/arrivals.h>
#include <tessera/launch/agent/local_rank.h>
#include <tessera/launch/agent/orphans.h>
#include <tessera/launch/fleet/fleet.h>
#include <tessera/launch/watch/liveness.h>
#include <tessera/launch/watch/stacks.h>
#include <tessera/launch/watch/verdict.h>

#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera::launch {

struct Outcome {
  int code = 0;           ///< what the agent returns if this was the end
  bool failed = false;    ///< a rank failed, froze or hung
  bool stopped = false;   ///< somebody asked the job to stop
  bool left = false;      ///< this agent ends alone, and another takes its place (LaunchOptions::by_launcher)
  bool done = false;      ///< it failed when the work was done: beginning again would do it again
  bool progress = false;  ///< it has made a step, or (programs that do not tell of steps) run for a minute
  std::string text;       ///< who failed and how
};

class Generation {
 public:
  /// Starts the ranks. `may_restart`: a failure ends them sooner, since others wait to begin. Throws InputError.
  Generation(Host& host, const FleetPlan& plan, bool may_restart);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// Until nothing is left of any rank.
  Outcome run();

 private:
  using Time = AgentClock::time_point;

  void start(int local_rank);
  void wait();
  std::size_t running() const;
  std::set<pid_t> pids() const;  ///< the ranks' processes
  bool made_progress() const;
  bool work_is_done() const;
  bool undecided() const { return first_failure_ && !failed_ && stop_signal_ == 0; }

  void on_signal(int signal);
  void look_at_fleet();
  void leave();
  void ask_all(int signal, Time kill_at);

  void find_ended();
  void on_exit(LocalRank& rank);
  void judge_failures();
  std::optional<Candidate> candidate(const LocalRank& rank) const;

  void look_at_liveness();
  void look_at_arrivals(Time now);
  void on_hang(const LivenessFinding& finding);
  void tell_stacks();

  /// The generation fails: tells why, unless people have been `told` elsewhere, and ends all ranks. `culprit` may be
  /// null.
  void fail(LocalRank* culprit, const std::string& text, bool told = false);
  void tell_circumstances(const LocalRank& rank, bool last_lines);

  Host& host_;
  const FleetPlan plan_;
  const bool may_restart_;
  Orphans orphans_;  ///< before the ranks: they are none
  std::list<LocalRank> ranks_;
  LivenessWatch liveness_;
  Arrivals arrivals_;
  const Time began_ = AgentClock::now();
  Time next_look_{}, next_oom_look_{};
  std::optional<Time> first_failure_;  ///< when the first rank was seen to fail; judged a moment later
  std::optional<StackDump> stacks_;    ///< stacks of a hang
  std::string hang_;                   ///< why the stacks are collected

  bool failed_ = false, done_ = false, left_ = false;
  LocalRank* culprit_ = nullptr;
  std::string failure_;
  int failure_code_ = 1;  ///< unless the culprit has one of its own
  int stop_signal_ = 0;   ///< the first request to stop
  int stop_code_ = 0;     ///< first exit code other than 0 after it
  int first_code_ = 0;    ///< exit code of the rank that was the first to be seen failing
  Time stopped_at_{};
};

}  // namespace tessera::launch
