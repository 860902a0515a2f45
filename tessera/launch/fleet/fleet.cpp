#include <tessera/launch/fleet/fleet.h>

#include <poll.h>
#include <unistd.h>

#include <tessera/base/error.h>
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

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

std::string own_hostname() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

FleetOptions completed(FleetOptions options) {
  TESSERA_CHECK(options.num_machines > 0 && options.machine_rank >= 0 && options.machine_rank < options.num_machines,
                "machine ", options.machine_rank, " of ", options.num_machines);
  TESSERA_CHECK((options.server != nullptr) == (options.machine_rank == 0), "the store is served by machine 0");
  if (options.hostname.empty()) options.hostname = own_hostname();
  std::replace(options.hostname.begin(), options.hostname.end(), '\n', ' ');
  return options;
}

std::string list_machines(const std::vector<int>& machines) {
  std::vector<std::string> names;
  for (int machine : machines) {
    if (names.size() == 8) {
      names.push_back(concat("and ", machines.size() - 8, " more"));
      break;
    }
    names.push_back(std::to_string(machine));
  }
  return join(names);
}

}  // namespace

class Fleet::Link {
 public:
  explicit Link(const FleetOptions& options) : options_(completed(options)), link_(options_) {
    const auto begin = Clock::now();
    auto next_notice = begin + seconds(options_.first_notice_seconds);
    for (;;) {
      link_.throw_if_refused();
      if (options_.machine_rank == 0) introduce();
      if (const auto plan = link_.plan(0)) {
        plan_ = *plan;
        return;
      }
      tick();
      const auto now = Clock::now();
      const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - begin).count();
      if (now - begin > seconds(options_.join_seconds)) {
        throw Error(concat("after ", waited, " s not all machines have come: ", missing()));
      }
      if (now >= next_notice) {
        next_notice = now + seconds(options_.notice_seconds);
        say(concat("waiting for ", waited, " s: ", missing()));
      }
    }
  }

  const FleetPlan& plan() const { return plan_; }
  FleetLink& link() { return link_; }
  const FleetOptions& options() const { return options_; }

  FleetVerdict agree(const FleetOutcome& outcome) {
    link_.give(outcome);
    const FleetVerdict verdict = options_.machine_rank == 0 ? decide() : learn();
    if (verdict.restart) {
      plan_ = *link_.plan(plan_.generation + 1);
      link_.begin(plan_.generation);
    }
    return verdict;
  }

 private:
  void say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  /// A short wait in which machine 0 serves its store.
  void tick() {
    if (options_.give_up && options_.give_up()) {
      throw Error("stopped on request while waiting for other machines", ExitCode::interrupted);
    }
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

  /// Machine 0: once all have introduced themselves, the plan of generation 0.
  void introduce() {
    if (planned_) return;
    FleetPlan plan;
    plan.generation = 0;
    for (int k = 0; k < options_.num_machines; ++k) {
      const auto text = options_.server->get(wire::machine_key(k));
      if (!text) continue;
      const wire::Introduction machine = wire::read_introduction(*text);
      if (machine.num_machines != options_.num_machines) {
        refuse(concat("machine ", k, " (", machine.hostname, ") was told --num_machines ", machine.num_machines,
                      ", machine 0 (", options_.hostname, ") ", options_.num_machines, ": give all the same number"));
      }
      plan.machines.push_back({machine.hostname, machine.local_processes, 0});
    }
    if (static_cast<int>(plan.machines.size()) < options_.num_machines) {
      // Those that count more machines than we know of are not asked above.
      for (const std::string& key : options_.server->list("fleet/machine/")) {
        const auto number = parse_int(key.substr(std::string("fleet/machine/").size()));
        if (number && *number >= options_.num_machines) {
          refuse(concat("machine rank ", *number, " came, but machine 0 was told --num_machines ",
                        options_.num_machines, ": give all the same number"));
        }
      }
      return;
    }
    publish(plan);
    planned_ = true;
  }

  /// The port of the ranks' own store is chosen anew each time: what the last generation left may still hold it.
  void publish(FleetPlan& plan) {
    plan.master_addr = options_.store_address;
    plan.master_port = choose_port(options_.store_address);
    options_.server->set(wire::plan_key(plan.generation), wire::write(plan));
  }

  [[noreturn]] void refuse(const std::string& why) {
    options_.server->set(wire::refused_key, why);
    for (const auto until = Clock::now() + std::chrono::milliseconds(300); Clock::now() < until;) tick();
    throw InputError(why);
  }

  std::string missing() {
    if (const std::string store = link_.waiting_for(); !store.empty()) return store + " does not answer";
    if (options_.machine_rank != 0) return "other machines have not come; machine 0 says which";
    std::vector<int> absent;
    for (int k = 0; k < options_.num_machines; ++k) {
      if (!options_.server->get(wire::machine_key(k))) absent.push_back(k);
    }
    return concat(absent.size(), " of ", options_.num_machines, " machines missing: machine ", list_machines(absent),
                  ". Start there: tessera launch --num_machines ", options_.num_machines, " --machine_rank ",
                  absent.size() == 1 ? std::to_string(absent[0]) : "K", " --main_process_ip ", options_.store_address,
                  " --main_process_port ", options_.store_port, " ...");
  }

  /// The others: machine 0's word, or the news that it is gone.
  FleetVerdict learn() {
    for (;;) {
      if (const auto verdict = link_.verdict()) return *verdict;
      if (const auto why = link_.cut()) return {false, 1, *why};
      tick();
    }
  }

  FleetVerdict decide() {
    StoreServer& server = *options_.server;
    const int generation = plan_.generation;
    std::set<int> waited;
    for (int k = 0; k < options_.num_machines; ++k) waited.insert(k);
    std::vector<FleetOutcome> outcomes(waited.size());
    std::optional<Clock::time_point> until;  // for the others, once a machine is lost
    while (!waited.empty()) {
      tick();
      if (link_.cut()) break;  // nobody can be told
      const std::set<int> lost = link_.lost();
      for (int machine : lost) waited.erase(machine);
      if (!lost.empty() && !until) until = Clock::now() + seconds(10);
      if (until && Clock::now() > *until) break;
      std::erase_if(waited, [&](int k) {
        const auto text = server.get(wire::outcome_key(generation, k));
        if (text) outcomes[static_cast<std::size_t>(k)] = wire::read_outcome(*text);
        return text.has_value();
      });
    }
    std::optional<FleetEvent> event = link_.event(false);
    if (!event) {  // reported in the same moment as the last outcome
      if (const auto text = server.get(wire::event_key(generation))) event = wire::read_event(*text);
    }
    const std::set<int> lost = link_.lost();
    const FleetVerdict verdict = judge(event, outcomes, lost.empty() && !link_.cut());
    if (verdict.restart) {
      FleetPlan next = plan_;
      next.generation = generation + 1;
      server.set_generation(next.generation);
      publish(next);
    }
    server.set(wire::verdict_key(generation), wire::write(verdict));
    wait_until_known(generation, lost);
    if (verdict.restart && !link_.plan(generation + 1)) throw Error("machine 0 lost its own store");
    return verdict;
  }

  static FleetVerdict judge(const std::optional<FleetEvent>& event, const std::vector<FleetOutcome>& outcomes,
                            bool all_here) {
    const bool all_may =
        all_here && std::all_of(outcomes.begin(), outcomes.end(), [](auto& o) { return o.may_restart; });
    const auto bad = std::find_if(outcomes.begin(), outcomes.end(), [](auto& o) { return o.code != 0; });
    const int code = bad == outcomes.end() ? 0 : bad->code;
    if (!event) return {false, all_here ? code : 1, ""};
    switch (event->kind) {
      case FleetEvent::failure:
        return {all_may, event->code, event->text};
      case FleetEvent::stop:
        return {false, event->code == static_cast<int>(ExitCode::interrupted) ? event->code : code, event->text};
      default:
        return {false, event->code, event->text};
    }
  }

  /// The store must live until all have read the verdict.
  void wait_until_known(int generation, const std::set<int>& lost) {
    for (const auto until = Clock::now() + seconds(options_.lost_seconds); Clock::now() < until;) {
      bool all = true;
      for (int k = 0; k < options_.num_machines; ++k) {
        all = all && (lost.contains(k) || options_.server->get(wire::acknowledged_key(generation, k)));
      }
      if (link_.cut() || (all && link_.verdict())) return;
      tick();
    }
  }

  const FleetOptions options_;
  FleetLink link_;
  FleetPlan plan_;
  bool planned_ = false;
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
