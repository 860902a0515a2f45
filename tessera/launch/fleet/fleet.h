#pragma once
/// \file
/// launch/fleet/: the agents of several hosts act as one.
///
/// The agents of a job's hosts act as one: they meet, agree which ranks run where, hear of each other's failures within
/// a fraction of a second, and restart or end together. All through the job's authenticated store (store_client.h),
/// which the agent of machine 0 has started before (store_server.h) at main_process_ip:main_process_port.
///
/// An agent's life:
///   Fleet fleet(options);                       // waits for all machines; says who is missing
///   start ranks by fleet.plan();                // generation 0
///   loop: watch the local ranks, poll fleet.event_fd();
///     a local rank failed       -> fleet.report({Event::failure, code, text}); end the local ranks
///     fleet.event() from others -> failure or lost: end the local ranks; stop: ask them to stop (SIGTERM)
///   all local ranks are gone -> fleet.agree(outcome): every machine gets the same answer: restart with plan()
///     of the next generation, or the exit code of the job.
///
/// A machine is lost when it gives no sign for lost_seconds; a connection that breaks, or brings no answer, is replaced
/// until then. An agent that ends, or is killed, is known at once, because its kernel closes the connection: then the
/// store executes its will (StoreClient::set_will). Where a failure may be followed by a restart, machine 0 waits for
/// lost machines to come back: for the same agent, which has ended its ranks, too, and tries to reach the store for
/// join_seconds; or for a new one with the same machine rank. Machine 0 itself cannot be lost: the store is there,
/// and machine 0's agent reaches it within its process. Where machine 0 is cut off it has lost all others, and waits.
///
/// Machine 0 must not stay away from its loop for longer than a second or so: the others wait for its store.
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
  int local_processes = 1;    ///< processes of this machine; they may differ
  std::string hostname;       ///< for messages; empty: this host's name
  std::string store_address;  ///< the store of machine 0
  int store_port = 0;
  Secret secret{};
  StoreServer* server =
      nullptr;  ///< the store of machine 0: served (turn()) wherever this waits; else the caller's loop serves it
  double join_seconds = 600;        ///< then the wait for missing machines ends
  double first_notice_seconds = 5;  ///< missing machines are listed after this, and every notice_seconds
  double notice_seconds = 10;
  double lost_seconds = 30;  ///< without a sign of the store (or, for machine 0, of another machine)
  double ended_seconds = 1;  ///< the same once it is known that the agent there has closed its connection
  std::function<void(const std::string&)> say;  ///< lines for people; may be empty
  bool takes_place = false;       ///< from an agent that was started before for the same machine, which then ends
  std::function<bool()> give_up;  ///< asked ten times a second while waiting; true: Error(interrupted)
};

struct Machine {
  std::string hostname;
  int local_processes = 0;
  int first_rank = 0;
  std::string token = {};  ///< tells its agent from another one in its place
};

/// Which ranks run where in one generation. Equal on all machines but for `first_rank` and `local_processes`.
struct FleetPlan {
  int generation = 0;
  int world_size = 1;
  int first_rank = 0, local_processes = 1;  ///< ranks that this machine starts
  std::string master_addr;                  ///< for the ranks: MASTER_ADDR (machine 0) and a port
  int master_port = 0;                      ///< that was free there when the plan was made
  int job_port = 0;                         ///< master_port of generation 0: tells jobs with the same secret apart
  std::vector<Machine> machines;
};

/// What happened to the job on some machine.
struct FleetEvent {
  enum Kind {
    failure,  ///< a rank failed: all ranks end, then agree() restarts or ends the job
    stop,     ///< somebody asked the job to stop (SIGTERM, SIGINT): ranks are asked to save and end
    lost,     ///< a machine, or the store, gave no sign for lost_seconds: all ranks end, as after a failure
  };
  Kind kind = failure;
  int machine = 0;   ///< where; lost: which one (-1: machine 0 cannot reach its own store any more)
  int code = 1;      ///< exit code of the failed rank; 130 or 143 for stop
  std::string text;  ///< "host7: rank 3 (pid 12) was killed by SIGKILL"
};

/// How the local ranks of one generation ended.
struct FleetOutcome {
  int code = 0;              ///< 0 when all are done; else what this agent would return alone
  bool may_restart = false;  ///< this agent would restart (restarts are left, nobody asked to stop)
  std::string told = {};     ///< the event that this agent has told people already; empty: none
};

struct FleetVerdict {
  bool restart = false;  ///< plan() is that of the next generation now
  int code = 0;          ///< exit code of the job, when it does not restart
  std::string text;      ///< why: the event that came first; empty when all is well
};

/// Threads: a thread of its own keeps contact; all methods may be called from any one thread. Children may be forked
/// and exec'd meanwhile. Not copyable.
class Fleet {
 public:
  /// Joins and waits for all machines. Throws InputError: a machine rank twice, another number of machines, the store
  /// refuses the secret; Error: not all came within join_seconds (lists who is missing), the store cannot be reached.
  explicit Fleet(const FleetOptions& options);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  const FleetPlan& plan() const;

  /// Tells all machines. The first event of a generation counts; later ones are dropped. Returns at once.
  void report(FleetEvent::Kind kind, int code, const std::string& text);
  /// The first event of this generation, reported by whichever machine (this one too). Cheap: no traffic.
  std::optional<FleetEvent> event() const;
  /// Readable (poll) while an event is there that event() has not returned yet.
  int event_fd() const noexcept;

  /// Call when nothing of the local ranks is left. Waits for all machines and returns what all of them return.
  /// Where all that are left may restart, lost machines are waited for, join_seconds long; this machine tries to come
  /// back when it is the one that was lost. On machine 0 this also sets the server's generation.
  FleetVerdict agree(const FleetOutcome& outcome);

 private:
  class Link;
  std::unique_ptr<Link> link_;
};

}  // namespace tessera::launch
