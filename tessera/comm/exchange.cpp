#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/base/text.h>
#include <tessera/comm/exchange.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/thread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <set>
#include <thread>

namespace tessera::comm {

using wire::Comparer;
using wire::decode;
using wire::encode;
using wire::look_at;
using wire::Sighting;
namespace {

using std::chrono::milliseconds;

constexpr milliseconds period(250), period_while_blocked(100), period_in_a_hurry(20);
constexpr std::int64_t blocked_ns = 100'000'000;
constexpr std::int64_t long_blocked_ns = 5'000'000'000;  // longer waits use the slow period again
constexpr std::size_t most_entries = 256;                // in one message

const std::string verdict_key = "watch/verdict";
std::string key_of(int rank) { return concat("watch/", rank); }

}  // namespace

struct Exchange::Impl {
  Impl(int its_rank, c10::intrusive_ptr<c10d::Store> its_store)
      : rank(its_rank), comparer(its_rank), store(std::move(its_store)) {}

  const int rank;
  Comparer comparer;
  c10::intrusive_ptr<c10d::Store> store;  // used only by the thread once it runs

  std::mutex mutex;
  std::condition_variable wake;
  bool ending = false, hurry = false, at_once = true;
  std::string to_spread;
  std::atomic<bool> alive{true};
  std::promise<void> ended;
  std::future<void> end = ended.get_future();

  // Used only by the thread.
  std::uint64_t cursor = 0;
  std::deque<std::vector<launch::Entry>> published;  // the entries of the last three messages
  bool published_blocked = false;
  launch::RankState published_state = launch::RankState::none;
  std::set<int> heard;  // ranks whose key is known to exist
  bool spread_done = false;

  void run();
  bool round();  // returns whether this rank is waiting
  void publish(const Sighting& mine);
  std::optional<Sighting> read(int other);
  void share_verdict();
};

void Exchange::Impl::run() {
  try {
    store = store->clone();
    bool waiting = false;
    while (true) {
      {
        std::unique_lock lock(mutex);
        wake.wait_for(lock,
                      hurry     ? period_in_a_hurry
                      : waiting ? period_while_blocked
                                : period,
                      [&] { return ending || at_once; });
        if (ending && to_spread.empty()) break;
        at_once = false;
      }
      waiting = round();
      const std::lock_guard lock(mutex);
      if (ending) break;
    }
  } catch (const std::exception&) {
    // The store is gone, and its host with it: no rank is left to compare with.
  }
  alive = false;
  store.reset();
  ended.set_value();
}

// Publishes the new entries and those of the two previous messages, which a reader may have missed.
void Exchange::Impl::publish(const Sighting& mine) {
  published.push_back(mine.entries);
  if (published.size() > 3) published.pop_front();
  Sighting message = mine;
  message.entries.clear();
  for (const auto& part : published) message.entries.insert(message.entries.end(), part.begin(), part.end());
  if (message.entries.size() > most_entries)
    message.entries.erase(message.entries.begin(), message.entries.end() - most_entries);
  const std::string bytes = encode(message);
  store->set(key_of(rank), std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
  published_blocked = mine.blocked_in.has_value();
  published_state = mine.state;
}

std::optional<Sighting> Exchange::Impl::read(int other) {
  if (heard.count(other) == 0) {  // get() would block until the key exists
    if (!store->check({key_of(other)})) return std::nullopt;
    heard.insert(other);
  }
  const std::vector<std::uint8_t> bytes = store->get(key_of(other));
  auto sighting = decode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (sighting && sighting->rank != other) return std::nullopt;
  return sighting;
}

void Exchange::Impl::share_verdict() {
  std::string mine;
  {
    const std::lock_guard lock(mutex);
    mine = to_spread;
  }
  if (!mine.empty() && !spread_done) {
    store->compareSet(verdict_key, "", mine);
    spread_done = true;
    const std::lock_guard lock(mutex);
    to_spread.clear();
  }
  if (!heartbeat().verdict() && store->check({verdict_key})) {
    const std::string theirs = store->get_to_str(verdict_key);
    heartbeat().set_verdict(theirs);
    heartbeat().fail(theirs);
  }
}

bool Exchange::Impl::round() {
  const Sighting mine = look_at(heartbeat().slot(), rank, cursor);
  const bool waiting = mine.blocked_in && mine.blocked_ns >= blocked_ns;
  const bool changed =
      !mine.entries.empty() || mine.state != published_state || mine.blocked_in.has_value() != published_blocked;
  if (changed || waiting) publish(mine);
  std::vector<Sighting> theirs;
  for (const int other : comparer.others()) {
    if (auto sighting = read(other)) theirs.push_back(std::move(*sighting));
  }
  if (const auto found = comparer.compare(mine, theirs)) {
    heartbeat().set_verdict(*found);
    heartbeat().fail(*found);
    const std::lock_guard lock(mutex);
    if (to_spread.empty()) to_spread = *found;
  }
  share_verdict();
  return waiting && mine.blocked_ns < long_blocked_ns;
}

Exchange::Exchange(int rank, const c10::intrusive_ptr<c10d::Store>& store)
    : impl_(std::make_shared<Impl>(rank, store)) {
  quiet_thread("tessera-compare", [impl = impl_] { impl->run(); }).detach();
}

Exchange::~Exchange() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->wake.notify_all();
  impl_->end.wait_for(std::chrono::seconds(1));
}

void Exchange::add_group(std::uint32_t id, const std::vector<int>& members) { impl_->comparer.add_group(id, members); }

void Exchange::hurry(bool on) {
  const std::lock_guard lock(impl_->mutex);
  impl_->hurry = impl_->at_once = on;
  impl_->wake.notify_all();
}

void Exchange::spread(const std::string& verdict) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->to_spread.empty()) impl_->to_spread = verdict;
}

bool Exchange::settled(const launch::Entry& entry) const { return impl_->comparer.settled(entry); }
bool Exchange::alive() const { return impl_->alive; }

}  // namespace tessera::comm
