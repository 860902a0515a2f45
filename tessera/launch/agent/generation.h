#pragma once
/// \file
/// One generation of this host's ranks: from their start until none of their processes is left. It reports whatever
/// ends it early (a death, a freeze, a hang, a request to stop); launcher.cpp decides whether another generation
/// follows.

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
  int code = 0;           ///< the agent's exit code unless a restart follows
  bool failed = false;    ///< a rank failed, froze or hung
  bool stopped = false;   ///< the job was asked to stop
  bool left = false;      ///< this agent exits alone, and another replaces it (LaunchOptions::by_launcher)
  bool done = false;      ///< the failure came after all work was done: a restart would repeat the work
  bool progress = false;  ///< the generation completed a step, or (for programs that do not report steps) ran for a
                          ///< minute
  std::string text;       ///< which rank failed and how
};

class Generation {
 public:
  /// Starts the ranks. `may_restart`: after a failure the ranks are killed sooner, because new ones wait to start.
  /// Throws InputError.
  Generation(Host& host, const FleetPlan& plan, bool may_restart);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// Returns once none of the ranks' processes is left.
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

  /// Fails the generation: reports `text`, unless `told` (already reported elsewhere), and ends all ranks. `culprit`
  /// may be null.
  void fail(LocalRank* culprit, const std::string& text, bool told = false);
  void tell_circumstances(const LocalRank& rank, bool last_lines);

  Host& host_;
  const FleetPlan plan_;
  const bool may_restart_;
  Orphans orphans_;  ///< constructed before the ranks are started, so that they do not count as orphans
  std::list<LocalRank> ranks_;
  LivenessWatch liveness_;
  Arrivals arrivals_;
  const Time began_ = AgentClock::now();
  Time next_look_{}, next_oom_look_{};
  std::optional<Time> first_failure_;  ///< when the first failure of a rank was noticed; the culprit is determined a
                                       ///< moment later
  std::optional<StackDump> stacks_;    ///< stacks of a hang
  std::string hang_;                   ///< the reason for collecting the stacks

  bool failed_ = false, done_ = false, left_ = false;
  LocalRank* culprit_ = nullptr;
  std::string failure_;
  int failure_code_ = 1;  ///< used unless the culprit has an exit code of its own
  int stop_signal_ = 0;   ///< the first request to stop
  int stop_code_ = 0;     ///< first non-zero exit code after the request
  int first_code_ = 0;    ///< exit code of the rank whose failure was noticed first
  Time stopped_at_{};
};

}  // namespace tessera::launch
