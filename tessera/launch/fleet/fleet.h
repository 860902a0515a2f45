#pragma once
/// \file
/// launch/fleet/: the agents of several hosts act as one.
///
/// They join, agree which ranks run where, learn of each other's failures within a fraction of a second, and restart or
/// exit together. All communication uses the job's authenticated store (store_client.h), which the agent of machine 0
/// starts (store_server.h) at main_process_ip:main_process_port.
///
/// An agent's life:
///   Fleet fleet(options);                       // waits for all machines; reports which are missing
///   start ranks by fleet.plan();                // generation 0
///   loop: watch the local ranks, poll fleet.event_fd();
///     a local rank failed       -> fleet.report({Event::failure, code, text}); end the local ranks
///     fleet.event() from others -> failure or lost: end the local ranks; stop: ask them to stop (SIGTERM)
///   all local ranks are gone -> fleet.agree(outcome): every machine gets the same answer: restart with plan()
///     of the next generation, or the exit code of the job.
///
/// A machine is lost when it has not been heard from for lost_seconds; until then a connection that breaks, or brings
/// no answer, is replaced. The exit of an agent, even a killed one, is noticed at once because its kernel closes the
/// connection; the store then executes its will (StoreClient::set_will). If a failure may be followed by a restart,
/// machine 0 waits for lost machines to return: either the same agent, which has also ended its ranks and tries to
/// reach the store for join_seconds, or a new one with the same machine rank. Machine 0 itself cannot be lost: it hosts
/// the store, and its agent reaches it within its process. When machine 0 is cut off, all others are lost to it, and it
/// waits.
///
/// Machine 0 must not stay away from its loop for more than about a second, because the others wait for its store.
///
/// Only durations are compared, each on one host's monotonic clock: the hosts' clocks need not agree.

#include <tessera/launch/store/store_secret.h>
#include <tessera/launch/store/store_server.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

struct FleetOptions {
  int machine_rank = 0, num_machines = 1;
  int local_processes = 1;    ///< processes of this machine; the number may differ between machines
  std::string hostname;       ///< for messages; empty: this host's name
  std::string store_address;  ///< the store of machine 0
  int store_port = 0;
  Secret secret{};
  StoreServer* server =
      nullptr;  ///< machine 0: its store; turn() is called wherever this class waits, and otherwise by the caller's
                ///< loop
  double join_seconds = 600;        ///< how long to wait for missing machines
  double first_notice_seconds = 5;  ///< missing machines are listed after this, then every notice_seconds
  double notice_seconds = 10;
  double lost_seconds = 30;  ///< without contact to the store (or, for machine 0, from another machine)
  double ended_seconds = 1;  ///< the same limit once that machine's agent is known to have closed its connection
  std::function<void(const std::string&)> say;  ///< prints lines for the user; may be empty
  bool takes_place = false;       ///< replaces an agent that was started earlier for the same machine, which then exits
  std::function<bool()> give_up;  ///< polled ten times a second while waiting; true: throws Error(interrupted)
};

struct Machine {
  std::string hostname;
  int local_processes = 0;
  int first_rank = 0;
  std::string token = {};  ///< distinguishes its agent from one that replaces it
};

/// The placement of ranks in one generation. Equal on all machines except for `first_rank` and `local_processes`.
struct FleetPlan {
  int generation = 0;
  int world_size = 1;
  int first_rank = 0, local_processes = 1;  ///< ranks that this machine starts
  std::string master_addr;                  ///< MASTER_ADDR of the ranks (machine 0)
  int master_port = 0;                      ///< a port that was free there when the plan was made
  int job_port = 0;                         ///< master_port of generation 0: distinguishes jobs with the same secret
  std::vector<Machine> machines;
};

/// An event that concerns the whole job.
struct FleetEvent {
  enum Kind {
    failure,  ///< a rank failed: all ranks end, then agree() restarts or ends the job
    stop,     ///< the job was asked to stop (SIGTERM, SIGINT): ranks are asked to save and exit
    lost,     ///< contact with a machine, or the store, was lost for lost_seconds: all ranks end, as after a failure
  };
  Kind kind = failure;
  int machine = 0;   ///< the machine of the event; for `lost`, the lost one (-1: machine 0 cannot reach its own store)
  int code = 1;      ///< exit code of the failed rank; 130 or 143 for stop
  std::string text;  ///< "host7: rank 3 (pid 12) was killed by SIGKILL"
};

/// How the local ranks of one generation ended.
struct FleetOutcome {
  int code = 0;              ///< 0 when all succeeded; otherwise the exit code that this agent would return alone
  bool may_restart = false;  ///< this agent would restart (restarts are left, no stop was requested)
  std::string told = {};     ///< the event that this agent has already printed; empty: none
};

struct FleetVerdict {
  bool restart = false;  ///< true: plan() is that of the next generation
  int code = 0;          ///< exit code of the job, when it does not restart
  std::string text;      ///< the reason: the event that came first; empty on success
};

/// Threads: a thread of its own keeps contact; all methods may be called from any single thread. Children may be forked
/// and exec'd while it runs. Not copyable.
class Fleet {
 public:
  /// Joins and waits for all machines. Throws InputError for a duplicate machine rank, another number of machines, or a
  /// refused secret; Error when some machines did not join within join_seconds (lists them) or the store cannot be
  /// reached.
  explicit Fleet(const FleetOptions& options);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  const FleetPlan& plan() const;

  /// Reports an event to all machines. The first event of a generation counts; later ones are dropped. Returns at once.
  void report(FleetEvent::Kind kind, int code, const std::string& text);
  /// The first event of this generation, from any machine including this one. Cheap: causes no traffic.
  std::optional<FleetEvent> event() const;
  /// Readable (poll) while an event is pending that event() has not returned yet.
  int event_fd() const noexcept;

  /// Call when none of the local ranks' processes is left. Waits for all machines and returns the same verdict on all
  /// of them. If all remaining machines may restart, lost ones are awaited for join_seconds; a machine that was lost
  /// itself tries to rejoin. On machine 0 this also sets the server's generation.
  FleetVerdict agree(const FleetOutcome& outcome);

 private:
  class Link;
  std::unique_ptr<Link> link_;
};

}  // namespace tessera::launch
