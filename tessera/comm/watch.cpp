#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/comm/blocked.h>
#include <tessera/comm/exchange.h>
#include <tessera/comm/thread.h>
#include <tessera/comm/watch.h>
#include <tessera/wire/neighbours.h>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>

namespace tessera::comm {

using wire::Comparer;
using wire::look_at;
using wire::neighbour_of;
using wire::Sighting;
namespace {

using std::chrono::milliseconds;

constexpr milliseconds period(100), period_in_a_hurry(10);
constexpr int memory_every = 5;  // periods

std::int64_t process_cpu_ns() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

// Resident bytes of this process, from an open /proc/self/statm; 0 if it cannot be read.
std::int64_t resident_bytes(int statm) {
  char text[128];
  const ssize_t n = pread(statm, text, sizeof text - 1, 0);
  if (n <= 0) return 0;
  text[n] = 0;
  char* end = nullptr;
  std::strtoll(text, &end, 10);  // size
  return std::strtoll(end, nullptr, 10) * sysconf(_SC_PAGESIZE);
}

}  // namespace

std::optional<std::string> stop_requested() { return heartbeat().stop_reason(); }

void throw_if_stopped() {
  if (const auto why = stop_requested()) throw Error(*why);
}

struct Watcher::Impl {
  explicit Impl(int its_rank) : rank(its_rank), on_board(its_rank) {}

  const int rank;
  c10::intrusive_ptr<c10d::Store> store;
  Comparer on_board;                        // neighbours whose slots this process can read
  std::unique_ptr<Exchange> through_store;  // the others

  std::mutex mutex;
  std::condition_variable wake;
  bool ending = false, hurry = false, at_once = false;
  std::thread thread;

  // Used only by the thread.
  launch::UniqueFd statm;
  int beats = 0;
  std::uint64_t cursor = 0;
  std::map<int, std::uint64_t> cursors;  // read positions in the neighbours' slots

  const launch::RankSlot* slot_of(int other) const;
  void run();
  void beat();
  void compare();
};

// nullptr if that rank has no slot on this board, or has not joined in this generation yet.
const launch::RankSlot* Watcher::Impl::slot_of(int other) const {
  const launch::Board& board = *heartbeat().board();
  const int index = other - board.header().first_rank;
  return index >= 0 && index < board.slots() ? &board.slot(index) : nullptr;
}

void Watcher::Impl::run() {
  std::unique_lock lock(mutex);
  while (!ending) {
    lock.unlock();
    beat();
    compare();
    lock.lock();
    wake.wait_for(lock, hurry ? period_in_a_hurry : period, [&] { return ending || at_once; });
    at_once = false;
  }
}

void Watcher::Impl::beat() {
  launch::RankSlot& slot = heartbeat().slot();
  const auto blocked = blocked_threads().all();
  slot.blocked_since_ns.store(blocked ? blocked->since_ns : 0, std::memory_order_relaxed);
  slot.blocked_in.store(blocked ? blocked->entry_id + 1 : 0, std::memory_order_release);
  if (beats++ % memory_every == 0) slot.memory_bytes = resident_bytes(statm.get());
  slot.cpu_ns = process_cpu_ns();
  slot.heartbeat_ns.store(monotonic_ns(), std::memory_order_release);
}

void Watcher::Impl::compare() {
  // Look at this rank first, because add_group() has already reported what it had started by then.
  const Sighting mine = look_at(heartbeat().slot(), rank, cursor);
  std::vector<Sighting> theirs;
  for (const int other : on_board.others()) {
    const launch::RankSlot& slot = *slot_of(other);
    if (slot.pid == 0 || slot.generation != heartbeat().slot().generation) continue;
    theirs.push_back(look_at(slot, other, cursors[other]));
  }
  if (const auto found = on_board.compare(mine, theirs)) {
    heartbeat().set_verdict(*found);
    heartbeat().fail(*found);
    const std::lock_guard lock(mutex);
    if (through_store) through_store->spread(*found);
  }
}

Watcher::Watcher(int rank) : impl_(std::make_unique<Impl>(rank)) {
  impl_->statm = launch::UniqueFd(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  impl_->thread = quiet_thread("tessera-watch", [impl = impl_.get()] { impl->run(); });
}

Watcher::~Watcher() {
  // This rank may host the store through which the other ranks still have to learn of a mismatch.
  if (impl_->through_store && heartbeat().verdict()) std::this_thread::sleep_for(milliseconds(400));
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

void Watcher::set_store(c10::intrusive_ptr<c10d::Store> store) { impl_->store = std::move(store); }

void Watcher::add_group(std::uint32_t id, const std::vector<int>& members) {
  Impl& impl = *impl_;
  const int next = neighbour_of(impl.rank, members);
  if (next == impl.rank) return;
  if (impl.slot_of(next) != nullptr) {
    impl.on_board.add_group(id, members);
  } else if (impl.store) {
    const std::lock_guard lock(impl.mutex);
    if (!impl.through_store) impl.through_store = std::make_unique<Exchange>(impl.rank, impl.store);
    impl.through_store->add_group(id, members);
  }
}

std::optional<std::string> Watcher::explain(const launch::Entry* entry, milliseconds patience) {
  Impl& impl = *impl_;
  const auto hurry = [&](bool on) {
    const std::lock_guard lock(impl.mutex);
    impl.hurry = impl.at_once = on;
    if (impl.through_store) impl.through_store->hurry(on);
    impl.wake.notify_all();
  };
  const auto settled = [&] {
    if (impl.through_store && !impl.through_store->alive()) return true;
    return entry != nullptr &&
           (impl.on_board.settled(*entry) || (impl.through_store && impl.through_store->settled(*entry)));
  };
  const auto deadline = std::chrono::steady_clock::now() + patience;
  hurry(true);
  std::optional<std::string> reason;
  while (!(reason = stop_requested()) && !settled() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  hurry(false);
  return reason;
}

}  // namespace tessera::comm
