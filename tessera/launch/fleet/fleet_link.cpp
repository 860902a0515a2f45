#include <tessera/launch/fleet/fleet_link.h>

#include <signal.h>
#include <sys/eventfd.h>

#include <tessera/base/error.h>
#include <tessera/base/system/endpoint.h>
#include <tessera/base/text.h>
#include <tessera/launch/store/hmac.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tessera::launch {

namespace {

using std::chrono::milliseconds;
namespace wire = fleet_wire;

constexpr milliseconds beat{200};
constexpr double first_try = 1, longer = 1.5;  // seconds to wait for an answer; growth of that time after each failure

milliseconds to_milliseconds(double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1000)); }

std::string random_token() {
  std::uint8_t bytes[8];
  random_bytes(bytes);
  std::string token;
  for (std::uint8_t byte : bytes) {
    for (int half : {byte >> 4, byte & 15}) token += "0123456789abcdef"[half];
  }
  return token;
}

}  // namespace

FleetLink::FleetLink(const FleetOptions& options)
    : options_(options), event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), token_(random_token()), origin_(token_) {
  if (!event_fd_) throw InputError(concat("eventfd: ", std::strerror(errno)));
  watched_.resize(static_cast<std::size_t>(options_.num_machines));
  sigset_t all, before;  // signals are handled by the agent's own thread
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FleetLink::~FleetLink() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void FleetLink::report(const FleetEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    if (event_ || to_report_) return;
    to_report_ = event;
  }
  wake_.notify_all();
}

std::optional<FleetEvent> FleetLink::event(bool drain) {
  if (drain) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_fd_.get(), &count, sizeof count);
  }
  const std::lock_guard lock(mutex_);
  return event_;
}

void FleetLink::give(const FleetOutcome& outcome) {
  {
    const std::lock_guard lock(mutex_);
    outcome_ = outcome;
  }
  wake_.notify_all();
}

std::optional<FleetPlan> FleetLink::joined() {
  const std::lock_guard lock(mutex_);
  return joined_plan_;
}

std::optional<FleetPlan> FleetLink::plan(int generation) {
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find(generation);
  return found == plans_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<FleetVerdict> FleetLink::verdict() {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

void FleetLink::begin(int generation) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_fd_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  generation_ = generation;
  event_.reset();
  to_report_.reset();
  outcome_.reset();
  verdict_.reset();
  lost_.clear();
}

void FleetLink::throw_if_refused() {
  const std::lock_guard lock(mutex_);
  if (refused_) std::rethrow_exception(refused_);
}

std::string FleetLink::waiting_for() {
  const std::lock_guard lock(mutex_);
  return waiting_for_;
}

std::set<int> FleetLink::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

std::optional<std::string> FleetLink::cut() {
  const std::lock_guard lock(mutex_);
  return cut_;
}

bool FleetLink::store_ended() {
  const std::lock_guard lock(mutex_);
  return store_ended_;
}

void FleetLink::rejoin() {
  {
    const std::lock_guard lock(mutex_);
    joined_plan_.reset();
    rejoin_ = true;
  }
  wake_.notify_all();
}

/// The first event of a generation counts.
void FleetLink::take(const FleetEvent& event) {
  const std::lock_guard lock(mutex_);
  if (event_) return;
  event_ = event;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd_.get(), &one, sizeof one);
}

StoreClient& FleetLink::client() {
  if (!client_) {
    const bool patient = !joined_ && !came_before_;  // machine 0 may start later
    StoreClientOptions options;
    options.host = options_.store_address;
    options.port = options_.store_port;
    options.secret = options_.secret;
    if (options_.server != nullptr) options.connect = [server = options_.server] { return server->connect(); };
    options.connect_timeout = to_milliseconds(patient ? options_.join_seconds : try_seconds_);
    options.answer_timeout = to_milliseconds(patient ? options_.lost_seconds : try_seconds_);
    options.interrupted = [this]() -> std::optional<std::string> {
      const std::lock_guard lock(mutex_);
      return stop_ ? std::optional("the agent is exiting") : std::nullopt;
    };
    client_ = std::make_unique<StoreClient>(options);
    connection_ = concat(token_, "/", ++connections_);
    client_->set_will(wire::ended_key(options_.machine_rank), connection_);
  }
  return *client_;
}

/// Waits a moment and returns whether to retry. False once the time is over, or when nobody has listened for
/// ended_seconds. Machine 0 may always retry: its store is in its own process and answers as soon as that process runs
/// again.
bool FleetLink::may_try_again(const StoreLost& lost, Tries& tries) {
  client_.reset();
  const auto now = Clock::now();
  tries.refused = lost.nobody_listens ? std::optional(tries.refused.value_or(tries.begin)) : std::nullopt;
  const bool ended = tries.refused && now - *tries.refused >= to_milliseconds(options_.ended_seconds);
  std::unique_lock lock(mutex_);
  store_ended_ = ended;
  if (stop_ || ended || (now >= tries.until && options_.server == nullptr)) return false;
  try_seconds_ = std::min(try_seconds_ * longer, std::max(first_try, options_.lost_seconds / 3));
  wake_.wait_for(lock, milliseconds(100), [this] { return stop_; });
  return true;
}

/// The packets of a silent connection may have been lost in a network outage: TCP then waits as long again as the
/// outage lasted, while a new connection gets through at once. In a slow network answers take longer, so each attempt
/// waits longer than the previous one.
void FleetLink::in_contact(const std::function<void(StoreClient&)>& call) {
  Tries tries{Clock::now() + to_milliseconds(options_.lost_seconds)};
  for (;;) {
    tries.begin = Clock::now();
    try {
      call(client());
      try_seconds_ = std::min(first_try, options_.lost_seconds);
      return;
    } catch (const StoreLost& lost) {
      if (!may_try_again(lost, tries)) throw;
    }
  }
}

void FleetLink::run() {
  try {
    join();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!stop_) refused_ = std::current_exception();
    return;
  }
  do {
    try {
      keep_contact();
      return;
    } catch (const std::exception& error) {
      const bool no_answer = dynamic_cast<const StoreLost*>(&error) != nullptr;
      const std::string why = concat(loss(no_answer), error.what());
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
        cut_ = why;
      }
      take({FleetEvent::lost, options_.machine_rank == 0 ? -1 : 0, 1, why});  // -1: its own ranks must end too
    }
  } while (come_back());
}

/// The beginning of the message that this machine has lost contact with the store for good.
std::string FleetLink::loss(bool no_answer) {
  const std::lock_guard lock(mutex_);
  const std::string host = plans_.at(generation_).machines[0].hostname;
  const std::string lost =
      concat("this machine (", options_.hostname, ") lost the job's store on machine 0 (", host, ")");
  if (!no_answer) return concat(lost, ": ");
  if (store_ended_) return concat(lost, ", whose agent has exited: ");
  return concat(lost, " for ", options_.lost_seconds, " s (--host_timeout): ");
}

/// Waits for rejoin() and joins again. Returns false if that is not possible.
bool FleetLink::come_back() {
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stop_ || rejoin_; });
    if (stop_) return false;
    rejoin_ = false;
  }
  token_ = random_token();  // shows machine 0 that the previous agent no longer exists
  joined_ = false;
  came_before_ = true;
  Tries tries{Clock::now() + to_milliseconds(options_.join_seconds)};
  for (;;) {
    tries.begin = Clock::now();
    try {
      join();
      return true;
    } catch (const StoreLost& lost) {
      if (may_try_again(lost, tries)) continue;
      const std::lock_guard lock(mutex_);
      if (!stop_) refused_ = std::current_exception();
      return false;
    } catch (...) {
      const std::lock_guard lock(mutex_);
      refused_ = std::current_exception();
      return false;
    }
  }
}

/// If a machine has two agents, only the one started last continues.
void FleetLink::end_if_replaced(StoreClient& store) {
  if (!options_.takes_place) return;
  const auto newest = store.find(wire::newest_key(options_.machine_rank));
  if (newest && *newest != origin_) throw Error("another agent was started to replace this one, which exits");
}

/// Claims this machine's rank.
void FleetLink::introduce(StoreClient& store) {
  const int me = options_.machine_rank;
  const std::string mine =
      wire::write(wire::Introduction{options_.num_machines, options_.local_processes, token_, options_.hostname});
  std::optional<std::string> heart;
  if (options_.takes_place && !came_before_) store.set(wire::newest_key(me), origin_);
  for (;;) {
    end_if_replaced(store);
    const std::string there = store.compare_set(wire::machine_key(me), "", mine);
    if (there == mine) return;
    // While the job runs, the holder may be an agent that has died without machine 0 noticing yet: its heartbeat does
    // not advance.
    const bool runs = store.find(wire::now_key).has_value();
    const std::string now = store.find(wire::heart_key(me)).value_or("");
    const bool beats = heart && !heart->empty() && !now.empty() && *heart != now;
    if (!runs || (beats && !options_.takes_place)) {
      throw InputError(concat("machine rank ", me, " is taken by ", wire::read_introduction(there).hostname,
                              ": give each machine its own --machine_rank"));
    }
    heart = now;
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, 3 * beat, [this] { return stop_; })) throw StoreLost("the agent is exiting");
  }
}

void FleetLink::join() {
  {
    const std::lock_guard lock(mutex_);
    waiting_for_ = concat("machine 0 at ", endpoint_text(options_.store_address, options_.store_port));
  }
  StoreClient& store = client();
  {
    const std::lock_guard lock(mutex_);
    waiting_for_.clear();
  }
  introduce(store);
  const auto me = static_cast<std::size_t>(options_.machine_rank);
  for (;;) {
    const auto now = store.find(wire::now_key);
    const auto generation = now ? parse_int(*now) : std::nullopt;
    if (const auto text = generation ? store.find(wire::plan_key(static_cast<int>(*generation))) : std::nullopt) {
      const FleetPlan plan = wire::read_plan(*text, options_.machine_rank);
      if (plan.machines[me].token == token_) {                    // otherwise the plan was made before this agent
                                                                  // joined
        store.set_answer_timeout(to_milliseconds(try_seconds_));  // this connection was opened with a long timeout
        const std::lock_guard lock(mutex_);
        // The previous generation's events and outcome do not belong to this one.
        event_.reset();
        to_report_.reset();
        outcome_.reset();
        verdict_.reset();
        plans_[plan.generation] = plan;
        joined_plan_ = plan;
        generation_ = plan.generation;
        cut_.reset();
        joined_ = true;
        return;
      }
    }
    if (const auto why = store.find(wire::refused_key)) throw InputError(*why);
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, milliseconds(50), [this] { return stop_; })) throw StoreLost("the agent is exiting");
  }
}

void FleetLink::keep_contact() {
  const int me = options_.machine_rank;
  int watched = -1;  // the generation whose heartbeats are watched
  int settled = -1;  // the generation whose verdict was taken
  for (;;) {
    std::optional<FleetEvent> report;
    std::optional<FleetOutcome> outcome;
    int generation = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      report = to_report_;
      outcome = outcome_;
      generation = generation_;
    }
    std::optional<std::string> event, verdict, next, given_up;
    if (generation > settled) {
      in_contact([&](StoreClient& store) {
        store.set(wire::heart_key(me), wire::write(wire::Heart{connection_, std::to_string(++beats_)}));
        if (report) store.compare_set(wire::event_key(generation), "", wire::write(*report));
        if (outcome) store.set(wire::outcome_key(generation, me), wire::write(*outcome));
        end_if_replaced(store);
        event = store.find(wire::event_key(generation));
        given_up = store.find(wire::lost_key(generation, me));
        verdict = store.find(wire::verdict_key(generation));
        if (verdict && wire::read_verdict(*verdict).restart) next = store.find(wire::plan_key(generation + 1));
        if (verdict) store.set(wire::acknowledged_key(generation, me), "1");
      });
      if (me == 0 && !verdict) {
        if (std::exchange(watched, generation) != generation) {
          looked_ = Clock::now();
          for (Watched& each : watched_) each = {each.heart, looked_, std::nullopt};
        }
        watch_hearts();
      }
    }
    // This machine has returned too late: the others are ending their ranks, and wait for a new agent to join.
    if (given_up) throw Error(concat("machine 0 considers this machine lost: ", *given_up));
    if (event) take(wire::read_event(*event));
    if (verdict) {
      const std::lock_guard lock(mutex_);
      if (next) plans_[generation + 1] = wire::read_plan(*next, me);
      verdict_ = wire::read_verdict(*verdict);
      settled = generation;
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, beat, [&] {
      return stop_ || (to_report_ && !report) || (outcome_ && !outcome) || generation_ > generation;
    });
  }
}

/// Machine 0: an agent without heartbeats is lost (its host died, hangs or is cut off, or it has exited).
void FleetLink::watch_hearts() {
  // Time during which this agent does not run, or its own store is slow, does not count against the others.
  const auto now = Clock::now();
  const auto away = std::max(now - looked_ - std::chrono::seconds(1), Clock::duration::zero());
  looked_ = now;
  if (away > Clock::duration::zero()) {
    stood_ = away;
    stood_until_ = now;
  }
  for (int machine = 1; machine < options_.num_machines; ++machine) {
    Watched& each = watched_[static_cast<std::size_t>(machine)];
    each.heard += away;
    if (each.ended) *each.ended += away;
    watch_heart(machine, now);
  }
}

void FleetLink::watch_heart(int machine, Clock::time_point now) {
  Watched& each = watched_[static_cast<std::size_t>(machine)];
  std::optional<std::string> heart, ended;
  in_contact([&](StoreClient& store) {
    heart = store.find(wire::heart_key(machine));
    ended = store.find(wire::ended_key(machine));
  });
  if (heart.value_or("") != each.heart) each = {heart.value_or(""), now, std::nullopt};
  const bool closed = ended && (!heart || wire::read_heart(*heart).connection == *ended);
  each.ended = closed ? std::optional(each.ended.value_or(now)) : std::nullopt;
  const auto lost_after = to_milliseconds(options_.lost_seconds);
  if (each.ended && now - *each.ended > to_milliseconds(options_.ended_seconds)) {
    const bool deserted = stood_ >= lost_after / 2 && now - stood_until_ < lost_after;
    declare_lost(machine, deserted ? concat("has given up on this machine, whose agent was suspended for ",
                                            std::chrono::duration_cast<std::chrono::seconds>(stood_).count(), " s")
                                   : "has left: its agent was killed, or exited because of an error");
  } else if (now - each.heard > lost_after) {
    declare_lost(machine, concat("has not been heard from for ", options_.lost_seconds,
                                 " s (--host_timeout): its agent or host died or hangs, or the network is down"));
  }
}

void FleetLink::declare_lost(int machine, const std::string& why) {
  std::string hostname;
  int generation = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.insert(machine).second) return;
    generation = generation_;
    hostname = plans_.at(generation).machines[static_cast<std::size_t>(machine)].hostname;
  }
  const FleetEvent lost{FleetEvent::lost, machine, 1, concat("machine ", machine, " (", hostname, ") ", why)};
  in_contact([&](StoreClient& store) {
    store.set(wire::lost_key(generation, machine), lost.text);
    store.compare_set(wire::event_key(generation), "", wire::write(lost));
  });
}

}  // namespace tessera::launch
