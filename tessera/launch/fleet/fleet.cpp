#include <tessera/launch/fleet/fleet.h>

#include <poll.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/system/host_name.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/fleet/fleet_link.h>
#include <algorithm>
#include <chrono>
#include <set>

namespace tessera::launch {

namespace {

using Clock = std::chrono::steady_clock;
namespace wire = fleet_wire;

/// Remedy for a lost store: it cannot be restarted elsewhere, since only machine 0's agent knows its contents.
constexpr const char* remedy = "start the agents of all machines again, with --resume_from_checkpoint auto";

constexpr std::size_t most_listed = 8;

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

FleetOptions completed(FleetOptions options) {
  TESSERA_CHECK(options.num_machines > 0 && options.machine_rank >= 0 && options.machine_rank < options.num_machines,
                "machine ", options.machine_rank, " of ", options.num_machines);
  TESSERA_CHECK((options.server != nullptr) == (options.machine_rank == 0), "the store is served by machine 0");
  if (options.hostname.empty()) options.hostname = host_name("unknown");
  std::replace(options.hostname.begin(), options.hostname.end(), '\n', ' ');
  return options;
}

std::string list_machines(const std::vector<int>& machines) {
  std::vector<std::string> names;
  for (int machine : machines) {
    if (names.size() == most_listed) {
      names.push_back(concat("and ", machines.size() - most_listed, " more"));
      break;
    }
    names.push_back(std::to_string(machine));
  }
  return join(names);
}

/// Schedules repeated notices while waiting, and measures the wait.
class Notices {
 public:
  explicit Notices(const FleetOptions& options) : options_(options) {}
  long long waited() const { return std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin_).count(); }
  bool over() const { return Clock::now() - begin_ > seconds(options_.join_seconds); }
  bool due() {
    if (Clock::now() < next_) return false;
    next_ = Clock::now() + seconds(options_.notice_seconds);
    return true;
  }

 private:
  const FleetOptions& options_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_ + seconds(options_.first_notice_seconds);
};

}  // namespace

class Fleet::Link {
 public:
  explicit Link(const FleetOptions& options) : options_(completed(options)), link_(options_) {
    Notices notices(options_);
    for (;;) {
      link_.throw_if_refused();
      if (options_.machine_rank == 0) introduce();
      if (const auto plan = link_.joined()) {
        plan_ = *plan;
        return;
      }
      tick();
      if (notices.over()) {
        throw Error(concat("after ", notices.waited(), " s not all machines have joined: ", missing()));
      }
      if (notices.due()) say(concat("waiting for ", notices.waited(), " s: ", missing()));
    }
  }

  const FleetPlan& plan() const { return plan_; }
  FleetLink& link() { return link_; }
  const FleetOptions& options() const { return options_; }

  FleetVerdict agree(const FleetOutcome& outcome) {
    link_.give(outcome);
    told_ = outcome.told;
    const FleetVerdict verdict = options_.machine_rank == 0 ? decide() : learn(outcome);
    if (verdict.restart) {
      const auto next = link_.plan(plan_.generation + 1);
      plan_ = next ? *next : *link_.joined();
      link_.begin(plan_.generation);
    }
    return verdict;
  }

 private:
  void say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  /// Prints an event once.
  void tell(const std::string& event) {
    if (event != told_) say(event);
    told_ = event;
  }

  /// Prints the event that ends or restarts this machine if it came after the last rank here had exited.
  void tell_event() {
    const auto event = link_.event(false);
    if (told_.empty() && event && event->kind != FleetEvent::stop) tell(event->text);
  }

  std::string machine_name(int machine) const {
    return concat("machine ", machine, " (", plan_.machines[static_cast<std::size_t>(machine)].hostname, ")");
  }

  std::string machine_names(const std::vector<int>& machines) const {
    std::vector<std::string> names;
    for (const int machine : machines) {
      if (names.size() == most_listed) {
        names.push_back(concat("and ", machines.size() - most_listed, " more"));
        break;
      }
      names.push_back(machine_name(machine));
    }
    return join(names);
  }

  void tick() {
    if (options_.give_up && options_.give_up()) {
      throw Error("stopped on request while waiting for other machines", ExitCode::interrupted);
    }
    serve();
  }

  /// Waits briefly; on machine 0, serves the store during the wait.
  void serve() {
    const auto until = Clock::now() + std::chrono::milliseconds(20);
    if (options_.server == nullptr) {
      ::poll(nullptr, 0, 20);
      return;
    }
    for (auto now = Clock::now(); now < until; now = Clock::now()) {
      pollfd ready{options_.server->fd(), POLLIN, 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now).count();
      ::poll(&ready, 1, static_cast<int>(left) + 1);
      options_.server->turn();
    }
  }

  /// Machine 0: the machines that have joined, by rank.
  std::vector<Machine> present() {
    std::vector<Machine> machines;
    for (int k = 0; k < options_.num_machines; ++k) {
      const auto text = options_.server->get(wire::machine_key(k));
      if (!text) continue;
      const wire::Introduction machine = wire::read_introduction(*text);
      if (machine.num_machines != options_.num_machines) {
        refuse(concat("machine ", k, " (", machine.hostname, ") was started with --num_machines ", machine.num_machines,
                      ", machine 0 (", options_.hostname, ") with ", options_.num_machines,
                      ": use the same number on all machines"));
      }
      machines.push_back({machine.hostname, machine.local_processes, 0, machine.token});
    }
    return machines;
  }

  /// Machine 0: publishes the plan of generation 0 once all machines have joined.
  void introduce() {
    if (planned_) return;
    FleetPlan plan;
    plan.generation = 0;
    plan.machines = present();
    if (static_cast<int>(plan.machines.size()) < options_.num_machines) {
      // Machines with a rank beyond our number are not covered above.
      for (const std::string& key : options_.server->list("fleet/machine/")) {
        const auto number = parse_int(key.substr(std::string("fleet/machine/").size()));
        if (number && *number >= options_.num_machines) {
          refuse(concat("machine rank ", *number, " joined, but machine 0 was started with --num_machines ",
                        options_.num_machines, ": use the same number on all machines"));
        }
      }
      return;
    }
    publish(plan);
    planned_ = true;
  }

  /// The port of the ranks' own store is chosen again each time: the previous generation may still hold it.
  void publish(FleetPlan& plan) {
    plan.master_addr = options_.store_address;
    plan.master_port = choose_port(options_.store_address);
    if (plan.generation == 0) plan.job_port = plan.master_port;
    options_.server->set(wire::plan_key(plan.generation), wire::write(plan));
    options_.server->set(wire::now_key, std::to_string(plan.generation));
  }

  [[noreturn]] void refuse(const std::string& why) {
    options_.server->set(wire::refused_key, why);
    for (const auto until = Clock::now() + std::chrono::milliseconds(300); Clock::now() < until;) tick();
    throw InputError(why);
  }

  std::string missing() {
    if (const std::string store = link_.waiting_for(); !store.empty()) return store + " does not answer";
    if (options_.machine_rank != 0) return "other machines have not joined; machine 0 lists them";
    std::vector<int> absent;
    for (int k = 0; k < options_.num_machines; ++k) {
      if (!options_.server->get(wire::machine_key(k))) absent.push_back(k);
    }
    return concat(absent.size(), " of ", options_.num_machines, " machines missing: machine ", list_machines(absent),
                  ". Start there: tessera launch --num_machines ", options_.num_machines, " --machine_rank ",
                  absent.size() == 1 ? std::to_string(absent[0]) : "K", " --main_process_ip ", options_.store_address,
                  " --main_process_port ", options_.store_port, " ...");
  }

  /// The other machines: waits for machine 0's verdict, or until machine 0 is known to be gone.
  FleetVerdict learn(const FleetOutcome& outcome) {
    Notices notices(options_);
    for (;;) {
      if (const auto verdict = link_.verdict()) {
        tell_event();
        return *verdict;
      }
      if (const auto why = link_.cut()) {
        if (outcome.may_restart && !link_.store_ended()) return come_back(*why);
        tell(*why);
        if (outcome.may_restart)
          say(concat("the job ends with ", machine_name(0), ", whose agent hosted its store: ", remedy));
        return {false, 1, *why};
      }
      if (notices.due())
        say(concat("waiting for ", notices.waited(), " s for machine 0, which waits for other machines"));
      tick();
    }
  }

  /// The others consider this machine lost, or soon will, and wait for it.
  FleetVerdict come_back(const std::string& why) {
    tell(why);
    say(concat("trying for up to ", options_.join_seconds, " s to rejoin ", machine_name(0)));
    const auto give_up = [&](const std::string& reason) -> FleetVerdict {
      say(concat(reason, ": the job ends here; ", remedy));
      return {false, 1, concat(why, "; ", reason)};
    };
    const int former = plan_.generation;
    link_.rejoin();
    Notices notices(options_);
    while (!notices.over()) {
      try {
        link_.throw_if_refused();
      } catch (const Error& error) {
        return give_up(concat("this machine could not rejoin: ", error.what()));
      }
      if (const auto plan = link_.joined()) {
        if (plan->generation > former) return {true, 0, why};
        return give_up(concat(machine_name(0), " has started another job"));
      }
      if (notices.due()) say(concat("waiting for ", notices.waited(), " s to rejoin machine 0"));
      tick();
    }
    return give_up(concat(machine_name(0), " was not back within ", options_.join_seconds, " s"));
  }

  FleetVerdict decide() {
    StoreServer& server = *options_.server;
    const int generation = plan_.generation;
    const std::vector<FleetOutcome> outcomes = collect();
    std::optional<FleetEvent> event = link_.event(false);
    if (!event) {  // reported at the same moment as the last outcome
      if (const auto text = server.get(wire::event_key(generation))) event = wire::read_event(*text);
    }
    tell_event();
    FleetVerdict verdict = judge(event, outcomes);
    std::set<int> lost = link_.lost();
    FleetPlan next;
    next.generation = generation + 1;
    next.job_port = plan_.job_port;
    if (verdict.restart && !lost.empty()) wait_for_the_lost(verdict, lost);
    if (verdict.restart) {
      next.machines = present();
      server.set_generation(next.generation);
      publish(next);
    }
    server.set(wire::verdict_key(generation), wire::write(verdict));
    wait_until_known(generation, lost);
    if (verdict.restart && !link_.plan(generation + 1)) throw Error("machine 0 lost its own store");
    return verdict;
  }

  /// How the generation ended on each machine that is not lost. A machine that does not report rules out a restart.
  std::vector<FleetOutcome> collect() {
    std::set<int> waited;
    for (int k = 0; k < options_.num_machines; ++k) waited.insert(k);
    std::vector<FleetOutcome> outcomes(waited.size());
    std::optional<Clock::time_point> until;  // deadline for the others once a machine is lost
    while (!waited.empty()) {
      tick();
      if (link_.cut()) break;  // nobody can be informed
      const std::set<int> lost = link_.lost();
      for (int machine : lost) waited.erase(machine);
      if (!lost.empty() && !until) until = Clock::now() + seconds(10);
      if (until && Clock::now() > *until) break;
      std::erase_if(waited, [&](int k) {
        const auto text = options_.server->get(wire::outcome_key(plan_.generation, k));
        if (text) outcomes[static_cast<std::size_t>(k)] = wire::read_outcome(*text);
        return text.has_value();
      });
    }
    return outcomes;
  }

  /// Returns the verdict. It is final if no machine is lost; otherwise it depends on whether the lost ones return.
  FleetVerdict judge(const std::optional<FleetEvent>& event, const std::vector<FleetOutcome>& outcomes) {
    const std::set<int> lost = link_.lost();
    const bool cut = link_.cut().has_value();
    bool all_may = !cut;
    int code = 0;
    for (std::size_t k = 0; k < outcomes.size(); ++k) {
      if (code == 0) code = outcomes[k].code;
      if (!lost.contains(static_cast<int>(k))) all_may = all_may && outcomes[k].may_restart;
    }
    if (!event) return {false, lost.empty() && !cut ? code : 1, ""};
    if (event->kind != FleetEvent::stop) return {all_may, event->code, event->text};
    return {false, event->code == static_cast<int>(ExitCode::interrupted) ? event->code : code, event->text};
  }

  /// Waits until the same agents, or replacements, have joined. Machines that are lost in the meantime are added to
  /// `lost`. The restart is cancelled on timeout, or when a stop is requested.
  void wait_for_the_lost(FleetVerdict& verdict, std::set<int>& lost) {
    StoreServer& server = *options_.server;
    std::set<int> away;
    const auto give_up = [&](const std::string& why, int code) {
      verdict = {false, code, concat(verdict.text, "; ", why)};
      say(why);
    };
    Notices notices(options_);
    for (lost.clear();;) {
      std::vector<int> missed;
      for (const int machine : link_.lost()) {
        if (!lost.insert(machine).second) continue;
        away.insert(machine);
        missed.push_back(machine);
        for (const std::string& key :
             {wire::machine_key(machine), wire::heart_key(machine), wire::ended_key(machine)}) {
          server.erase(key);
        }
      }
      if (!missed.empty()) {
        const bool all = static_cast<int>(missed.size()) == options_.num_machines - 1 && missed.size() > 1;
        say(concat("waiting up to ", options_.join_seconds, " s for ", machine_names(missed), " to return: ",
                   all ? "this machine may be the one that is cut off. An agent returns" : "an agent returns",
                   " by itself if only the network was down; otherwise start it again"));
      }
      std::erase_if(away, [&](int machine) { return server.get(wire::machine_key(machine)).has_value(); });
      if (away.empty()) return;
      const std::string machines = machine_names({away.begin(), away.end()});
      if (link_.cut()) return give_up("machine 0 lost its own store", 1);
      if (options_.give_up && options_.give_up()) {
        return give_up(concat("stopped on request while waiting for ", machines),
                       static_cast<int>(ExitCode::interrupted));
      }
      if (notices.over()) return give_up(concat(machines, " did not return within ", options_.join_seconds, " s"), 1);
      if (notices.due()) say(concat("waiting for ", notices.waited(), " s for ", machines, " to return"));
      serve();
    }
  }

  /// Whether a machine's agent has closed its last connection.
  bool has_left(int machine) const {
    const auto heart = options_.server->get(wire::heart_key(machine));
    const auto ended = options_.server->get(wire::ended_key(machine));
    return heart && ended && wire::read_heart(*heart).connection == *ended;
  }

  /// Keeps the store running until all machines have read the verdict.
  void wait_until_known(int generation, const std::set<int>& lost) {
    for (const auto until = Clock::now() + seconds(options_.lost_seconds); Clock::now() < until;) {
      bool all = true;
      for (int k = 0; k < options_.num_machines; ++k) {
        all = all && (lost.contains(k) || has_left(k) ||
                      options_.server->get(wire::acknowledged_key(generation, k)).has_value());
      }
      if (link_.cut() || (all && link_.verdict())) return;
      tick();
    }
  }

  const FleetOptions options_;
  FleetLink link_;
  FleetPlan plan_;
  bool planned_ = false;
  std::string told_;  ///< the event of this generation that has been printed
};

Fleet::Fleet(const FleetOptions& options) : link_(std::make_unique<Link>(options)) {}
Fleet::~Fleet() = default;
const FleetPlan& Fleet::plan() const { return link_->plan(); }
int Fleet::event_fd() const noexcept { return link_->link().event_fd(); }
std::optional<FleetEvent> Fleet::event() const { return link_->link().event(true); }
void Fleet::report(FleetEvent::Kind kind, int code, const std::string& text) {
  link_->link().report({kind, link_->options().machine_rank, code, text});
}
FleetVerdict Fleet::agree(const FleetOutcome& outcome) { return link_->agree(outcome); }

}  // namespace tessera::launch
