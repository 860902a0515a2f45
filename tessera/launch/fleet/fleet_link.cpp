#include <tessera/launch/fleet/fleet_link.h>

#include <signal.h>
#include <sys/eventfd.h>

#include <tessera/base/endpoint.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/store/hmac.h>
#include <cerrno>
#include <cstring>

namespace tessera::launch {

namespace {

using std::chrono::milliseconds;
namespace wire = fleet_wire;

constexpr milliseconds beat{200};

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
    : options_(options), event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), token_(random_token()) {
  if (!event_fd_) throw InputError(concat("eventfd: ", std::strerror(errno)));
  hearts_.resize(static_cast<std::size_t>(options_.num_machines));
  sigset_t all, before;  // signals are for the agent's own thread
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
    StoreClientOptions options;
    options.host = options_.store_address;
    options.port = options_.store_port;
    options.secret = options_.secret;
    options.connect_timeout = to_milliseconds(joined_ ? options_.lost_seconds : options_.join_seconds);
    options.answer_timeout = to_milliseconds(options_.lost_seconds);
    options.interrupted = [this]() -> std::optional<std::string> {
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return "the agent ends";
      }
      if (call_until_ && Clock::now() > *call_until_) return concat("no answer for ", options_.lost_seconds, " s");
      return std::nullopt;
    };
    client_ = std::make_unique<StoreClient>(options);
  }
  return *client_;
}

template <class Call>
auto FleetLink::in_contact(const Call& call) {
  const auto until = Clock::now() + to_milliseconds(options_.lost_seconds);
  for (;;) {
    call_until_ = until;
    try {
      return call(client());
    } catch (const StoreLost&) {
      client_.reset();
      std::unique_lock lock(mutex_);
      if (stop_ || Clock::now() >= until) throw;
      wake_.wait_for(lock, milliseconds(100), [this] { return stop_; });
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
  try {
    keep_contact();
  } catch (const std::exception& error) {
    const std::string why =
        concat("this machine (", options_.hostname, ") lost the job's store on machine 0: ", error.what());
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      cut_ = why;
    }
    take({FleetEvent::lost, options_.machine_rank == 0 ? -1 : 0, 1, why});  // -1: its own ranks must end too
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
  const std::string mine =
      wire::write(wire::Introduction{options_.num_machines, options_.local_processes, token_, options_.hostname});
  const std::string there = store.compare_set(wire::machine_key(options_.machine_rank), "", mine);
  if (there != mine) {
    throw InputError(concat("machine rank ", options_.machine_rank, " is taken by ",
                            wire::read_introduction(there).hostname, ": give each machine its own --machine_rank"));
  }
  for (;;) {
    if (const auto text = store.find(wire::plan_key(0))) {
      const FleetPlan plan = wire::read_plan(*text, options_.machine_rank);
      const std::lock_guard lock(mutex_);
      plans_[0] = plan;
      joined_ = true;
      return;
    }
    if (const auto why = store.find(wire::refused_key)) throw InputError(*why);
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, milliseconds(50), [this] { return stop_; })) throw StoreLost("the agent ends");
  }
}

void FleetLink::keep_contact() {
  const int me = options_.machine_rank;
  heard_.assign(hearts_.size(), Clock::now());
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
    std::optional<std::string> event, verdict, next;
    if (generation > settled) {
      in_contact([&](StoreClient& store) {
        store.add(wire::heart_key(me), 1);
        if (report) store.compare_set(wire::event_key(generation), "", wire::write(*report));
        if (outcome) store.set(wire::outcome_key(generation, me), wire::write(*outcome));
        event = store.find(wire::event_key(generation));
        verdict = store.find(wire::verdict_key(generation));
        if (verdict && wire::read_verdict(*verdict).restart) next = store.find(wire::plan_key(generation + 1));
        if (verdict) store.set(wire::acknowledged_key(generation, me), "1");
      });
      if (me == 0 && !verdict) watch_hearts();
    }
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

/// Machine 0: another agent whose count stands still for lost_seconds is lost (its host died, hangs or is cut off).
void FleetLink::watch_hearts() {
  for (int machine = 1; machine < options_.num_machines; ++machine) {
    const auto k = static_cast<std::size_t>(machine);
    const auto count =
        in_contact([&](StoreClient& store) { return store.find(wire::heart_key(machine)); }).value_or("");
    const auto now = Clock::now();
    if (count != hearts_[k]) {
      hearts_[k] = count;
      heard_[k] = now;
    } else if (now - heard_[k] > to_milliseconds(options_.lost_seconds)) {
      std::string hostname;
      int generation = 0;
      {
        const std::lock_guard lock(mutex_);
        if (!lost_.insert(machine).second) continue;
        hostname = plans_.begin()->second.machines[k].hostname;
        generation = generation_;
      }
      const FleetEvent lost{FleetEvent::lost, machine, 1,
                            concat("machine ", machine, " (", hostname, ") gave no sign for ", options_.lost_seconds,
                                   " s: its agent or its host died, hangs, or the network is cut")};
      in_contact(
          [&](StoreClient& store) { return store.compare_set(wire::event_key(generation), "", wire::write(lost)); });
    }
  }
}

}  // namespace tessera::launch
