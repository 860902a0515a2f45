#pragma once
/// \file
/// The thread that keeps an agent in contact with the job's store (fleet.h): it joins, sends heartbeats, reports this
/// machine's events and fetches those of the other machines. The agent's own loop never waits for it.

#include <tessera/launch/agent/unique_fd.h>
#include <tessera/launch/fleet/fleet.h>
#include <tessera/launch/store/store_client.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tessera::launch {

/// The agents' keys in the store, and the format of the values: one field per line, the last one free text.
namespace fleet_wire {
std::string machine_key(int machine);
std::string plan_key(int generation);
std::string event_key(int generation);
std::string heart_key(int machine);
std::string lost_key(int generation, int machine);  ///< reason why machine 0 considers the machine lost
std::string ended_key(int machine);           ///< the will of its agent: Heart::connection of the closed connection
std::string newest_key(int machine);          ///< the agent that replaces all before it: its first token
constexpr const char* now_key = "fleet/now";  ///< the generation of the newest plan
std::string outcome_key(int generation, int machine);
std::string verdict_key(int generation);
std::string acknowledged_key(int generation, int machine);
constexpr const char* refused_key = "fleet/refused";  ///< reason why the job cannot begin

struct Introduction {
  int num_machines = 1, local_processes = 1;
  std::string token;  ///< distinguishes two agents with the same machine rank
  std::string hostname;
};
/// Shows that an agent is alive; updated with every heartbeat.
struct Heart {
  std::string connection;  ///< unique id of the connection that sent it
  std::string beats;       ///< counter
};
std::string write(const Heart& value);
std::string write(const Introduction& value);
std::string write(const FleetPlan& value);
std::string write(const FleetEvent& value);
std::string write(const FleetOutcome& value);
std::string write(const FleetVerdict& value);
/// The readers throw Error when the text is malformed.
Heart read_heart(const std::string& text);
Introduction read_introduction(const std::string& text);
FleetPlan read_plan(const std::string& text, int machine);
FleetEvent read_event(const std::string& text);
FleetOutcome read_outcome(const std::string& text);
FleetVerdict read_verdict(const std::string& text);
}  // namespace fleet_wire

class FleetLink {
 public:
  explicit FleetLink(const FleetOptions& options);
  ~FleetLink();
  FleetLink(const FleetLink&) = delete;
  FleetLink& operator=(const FleetLink&) = delete;

  int event_fd() const noexcept { return event_fd_.get(); }

  // Methods for the agent's thread. All return at once.
  void report(const FleetEvent& event);
  std::optional<FleetEvent> event(bool drain);
  void give(const FleetOutcome& outcome);
  std::optional<FleetPlan> joined();              ///< the plan this machine joined, once it has joined
  std::optional<FleetPlan> plan(int generation);  ///< nullopt until available
  std::optional<FleetVerdict> verdict();          ///< the verdict of this generation, once available
  void begin(int generation);                     ///< forgets the last generation's event and verdict
  void throw_if_refused();                        ///< rethrows the exception that made joining fail
  std::string waiting_for();                      ///< shown to users while the store cannot be reached; otherwise empty
  std::set<int> lost();                           ///< machine 0: all machines that have lost contact in this
                                                  ///< generation, even if another event came first
  std::optional<std::string> cut();               ///< reason why this machine has permanently lost contact with the
                                                  ///< store
  bool store_ended();                             ///< the store has exited: contact will not be restored
  void rejoin();                                  ///< after cut(): tries to join again, as a new agent would

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void join();
  void introduce(StoreClient& store);
  void end_if_replaced(StoreClient& store);
  bool come_back();
  std::string loss(bool no_answer);
  void keep_contact();
  void watch_hearts();
  void watch_heart(int machine, Clock::time_point now);
  void declare_lost(int machine, const std::string& why);
  void take(const FleetEvent& event);
  StoreClient& client();
  /// State of the attempts to reach the store again.
  struct Tries {
    Clock::time_point until;                        ///< deadline
    Clock::time_point begin = {};                   ///< begin of the current attempt
    std::optional<Clock::time_point> refused = {};  ///< start of the current series of refused attempts; empty: the
                                                    ///< last attempt was not refused
  };
  bool may_try_again(const StoreLost& lost, Tries& tries);
  /// Repeats a call, or several, on a new connection when the old one broke or did not answer; throws StoreLost after
  /// lost_seconds, or ended_seconds of refused connections.
  void in_contact(const std::function<void(StoreClient&)>& call);

  const FleetOptions options_;
  UniqueFd event_fd_;
  std::string token_;         ///< distinguishes this agent from others with the same machine rank; used by the thread
                              ///< only
  const std::string origin_;  ///< the agent's first token, which it keeps when it rejoins

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false, rejoin_ = false, store_ended_ = false;
  int generation_ = 0;
  std::optional<FleetPlan> joined_plan_;
  std::optional<FleetEvent> event_, to_report_;
  std::optional<FleetOutcome> outcome_;
  std::optional<FleetVerdict> verdict_;
  std::map<int, FleetPlan> plans_;
  std::exception_ptr refused_;
  std::set<int> lost_;
  std::optional<std::string> cut_;
  std::string waiting_for_;

  // Used by the thread only.
  std::unique_ptr<StoreClient> client_;
  std::string connection_;  ///< distinguishes this connection from earlier ones
  bool joined_ = false, came_before_ = false;
  double try_seconds_ = 1;  ///< time after which a connection without an answer is replaced; grows until one answers
  int connections_ = 0;
  std::int64_t beats_ = 0;
  /// Machine 0's knowledge of another machine.
  struct Watched {
    std::string heart;
    Clock::time_point heard;
    std::optional<Clock::time_point> ended;  ///< when its last connection was found closed
  };
  std::vector<Watched> watched_;
  Clock::time_point looked_{}, stood_until_{};
  Clock::duration stood_{};  ///< how long this agent was suspended, up to stood_until_
  std::thread thread_;
};

}  // namespace tessera::launch
