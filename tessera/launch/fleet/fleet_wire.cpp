#include <tessera/launch/fleet/fleet_link.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::launch::fleet_wire {

namespace {

/// Reads fields line by line; the remaining text is the last field.
class Fields {
 public:
  Fields(const std::string& text, const char* what) : rest_(text), what_(what) {}
  std::string line() {
    const auto end = rest_.find('\n');
    if (end == std::string_view::npos) bad();
    const std::string result(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return result;
  }
  int number(int minimum, int maximum) {
    const auto value = parse_int(line());
    if (!value || *value < minimum || *value > maximum) bad();
    return static_cast<int>(*value);
  }
  std::string rest() const { return std::string(rest_); }
  [[noreturn]] void bad() const {
    throw Error(concat("an agent of another version, or an unrelated client, wrote to the job's store: bad ", what_));
  }

 private:
  std::string_view rest_;
  const char* what_;
};

constexpr int big = 1 << 30;

}  // namespace

std::string machine_key(int machine) { return concat("fleet/machine/", machine); }
std::string plan_key(int generation) { return concat("fleet/plan/", generation); }
std::string event_key(int generation) { return concat("fleet/event/", generation); }
std::string lost_key(int generation, int machine) { return concat("fleet/lost/", generation, "/", machine); }
std::string ended_key(int machine) { return concat("fleet/ended/", machine); }
std::string heart_key(int machine) { return concat("fleet/heart/", machine); }
std::string newest_key(int machine) { return concat("fleet/newest/", machine); }
std::string outcome_key(int generation, int machine) { return concat("fleet/outcome/", generation, "/", machine); }
std::string verdict_key(int generation) { return concat("fleet/verdict/", generation); }
std::string acknowledged_key(int generation, int machine) { return concat("fleet/ack/", generation, "/", machine); }

std::string write(const Introduction& v) {
  return concat(v.num_machines, "\n", v.local_processes, "\n", v.token, "\n", v.hostname);
}
Introduction read_introduction(const std::string& text) {
  Fields fields(text, "introduction");
  Introduction result;
  result.num_machines = fields.number(1, big);
  result.local_processes = fields.number(1, big);
  result.token = fields.line();
  result.hostname = fields.rest();
  return result;
}

std::string write(const Heart& v) { return concat(v.connection, "\n", v.beats); }
Heart read_heart(const std::string& text) {
  Fields fields(text, "heartbeat");
  return {fields.line(), fields.rest()};
}

std::string write(const FleetPlan& v) {
  std::string text =
      concat(v.generation, "\n", v.master_addr, "\n", v.master_port, "\n", v.job_port, "\n", v.machines.size(), "\n");
  for (const Machine& machine : v.machines)
    text += concat(machine.local_processes, "\n", machine.token, "\n", machine.hostname, "\n");
  return text;
}
FleetPlan read_plan(const std::string& text, int machine) {
  Fields fields(text, "plan");
  FleetPlan plan;
  plan.generation = fields.number(0, big);
  plan.master_addr = fields.line();
  plan.master_port = fields.number(1, 65535);
  plan.job_port = fields.number(1, 65535);
  const int count = fields.number(1, 65'536);
  plan.world_size = 0;
  for (int k = 0; k < count; ++k) {
    Machine next;
    next.local_processes = fields.number(1, 1 << 16);
    next.token = fields.line();
    next.hostname = fields.line();
    next.first_rank = plan.world_size;
    if (plan.world_size > big - next.local_processes) fields.bad();
    plan.world_size += next.local_processes;
    plan.machines.push_back(std::move(next));
  }
  if (machine >= count) fields.bad();
  plan.first_rank = plan.machines[static_cast<std::size_t>(machine)].first_rank;
  plan.local_processes = plan.machines[static_cast<std::size_t>(machine)].local_processes;
  return plan;
}

std::string write(const FleetEvent& v) {
  return concat(static_cast<int>(v.kind), "\n", v.machine, "\n", v.code, "\n", v.text);
}
FleetEvent read_event(const std::string& text) {
  Fields fields(text, "event");
  FleetEvent event;
  event.kind = static_cast<FleetEvent::Kind>(fields.number(0, FleetEvent::lost));
  event.machine = fields.number(0, big);
  event.code = fields.number(0, 255);
  event.text = fields.rest();
  return event;
}

std::string write(const FleetOutcome& v) { return concat(v.code, "\n", v.may_restart ? 1 : 0, "\n"); }
FleetOutcome read_outcome(const std::string& text) {
  Fields fields(text, "outcome");
  FleetOutcome outcome;
  outcome.code = fields.number(0, 255);
  outcome.may_restart = fields.number(0, 1) == 1;
  return outcome;
}

std::string write(const FleetVerdict& v) { return concat(v.restart ? 1 : 0, "\n", v.code, "\n", v.text); }
FleetVerdict read_verdict(const std::string& text) {
  Fields fields(text, "verdict");
  FleetVerdict verdict;
  verdict.restart = fields.number(0, 1) == 1;
  verdict.code = fields.number(0, 255);
  verdict.text = fields.rest();
  return verdict;
}

}  // namespace tessera::launch::fleet_wire
