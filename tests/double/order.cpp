#include <tests/double/order.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

namespace cuda_double {
namespace {

constexpr int most_devices = 8;
constexpr std::uint64_t kernels_ahead = 50;  // enough to keep a device busy while the host continues

struct Clock {
  std::vector<std::uint64_t> ticks;  // per stream
  void join(const Clock& other) {
    if (ticks.size() < other.ticks.size()) ticks.resize(other.ticks.size());
    for (std::size_t i = 0; i < other.ticks.size(); ++i) ticks[i] = std::max(ticks[i], other.ticks[i]);
  }
  bool covers(const Clock& other) const {
    for (std::size_t i = 0; i < other.ticks.size(); ++i) {
      if (other.ticks[i] > (i < ticks.size() ? ticks[i] : 0)) return false;
    }
    return true;
  }
  bool covers(std::uint32_t stream, std::uint64_t tick) const { return stream < ticks.size() && ticks[stream] >= tick; }
};

struct Event {
  Clock clock;
  std::uint32_t stream = 0;  // the stream that recorded it
  bool asked = false;        // event_query() has returned false since it was recorded
  std::chrono::steady_clock::time_point time;
};

/// An access that later accesses must be ordered after: bytes [low, high) of its block.
struct Done {
  std::size_t low, high;
  std::uint32_t stream;
  std::uint64_t tick;
  bool write;
  const char* operation;
};

struct Block {
  std::size_t bytes;
  int device;
  std::uint32_t owner;  // stream
  std::vector<Done> accesses;
  std::map<std::size_t, std::size_t> written;  // disjoint [low, high)
  std::set<std::uint32_t> recorded;            // streams passed to record_stream
  const char* writer = "nothing";

  void mark_written(std::size_t low, std::size_t high) {
    auto it = written.upper_bound(low);
    if (it != written.begin() && std::prev(it)->second >= low) --it;
    while (it != written.end() && it->first <= high) {
      low = std::min(low, it->first);
      high = std::max(high, it->second);
      it = written.erase(it);
    }
    written.emplace(low, high);
  }
  bool all_written(std::size_t low, std::size_t high) const {
    const auto it = written.upper_bound(low);
    return it != written.begin() && std::prev(it)->second >= high;
  }
};

struct State {
  std::mutex mutex;
  std::map<std::pair<int, std::int64_t>, std::uint32_t> numbers;  // (device, stream) -> index into clocks
  std::vector<Clock> clocks;
  Clock host;
  std::int64_t next_stream = 1;  // 0 is the default stream
  std::map<char*, Block> blocks;
  std::set<std::string> texts;
};

State& state() {
  static State* s = new State;  // outlives static destructors, which still free tensors
  return *s;
}

thread_local int device_now = 0;
thread_local std::array<std::int64_t, most_devices> streams_now{};

std::uint32_t number_of(State& s, int device, std::int64_t stream) {
  const auto [it, fresh] = s.numbers.try_emplace({device, stream}, static_cast<std::uint32_t>(s.clocks.size()));
  if (fresh) s.clocks.emplace_back();
  return it->second;
}

std::string name_of(const State& s, std::uint32_t number) {
  for (const auto& [key, n] : s.numbers) {
    if (n == number) return "stream " + std::to_string(key.second) + " of cuda:" + std::to_string(key.first);
  }
  return "an unknown stream";
}

std::map<char*, Block>::iterator block_at(State& s, const void* pointer) {
  auto* p = const_cast<char*>(static_cast<const char*>(pointer));
  auto it = s.blocks.upper_bound(p);
  if (it == s.blocks.begin()) return s.blocks.end();
  --it;
  return p < it->first + it->second.bytes ? it : s.blocks.end();
}

/// Compares one access with the block's history, then adds it there.
void access_block(State& s, Block& block, const Done& now) {
  const Clock& clock = s.clocks[now.stream];
  if (!now.write && !block.all_written(now.low, now.high)) {
    add_finding(Kind::uninitialized, std::string(now.operation) + " reads memory that nothing wrote (" +
                                         std::to_string(block.bytes) + " bytes allocated, last written by " +
                                         block.writer + ")");
  }
  for (const Done& done : block.accesses) {
    const bool overlaps = done.low < now.high && now.low < done.high;
    if (!overlaps || (!now.write && !done.write) || done.stream == now.stream || clock.covers(done.stream, done.tick)) {
      continue;
    }
    add_finding(Kind::race, std::string(now.operation) + " on " + name_of(s, now.stream) +
                                (now.write ? " writes" : " reads") + " what " + done.operation + " on " +
                                name_of(s, done.stream) + (done.write ? " wrote" : " read") +
                                " without waiting for it");
  }
  // Older accesses that the new one covers need no entry: a kernel ordered after the new one is also ordered after
  // them.
  std::erase_if(block.accesses, [&](const Done& done) {
    const bool covered = now.low <= done.low && done.high <= now.high;
    return covered && (now.write || (done.stream == now.stream && !done.write));
  });
  block.accesses.push_back(now);
  if (now.write) {
    block.mark_written(now.low, now.high);
    block.writer = now.operation;
  }
}

}  // namespace

int device_count() {
  static const int count = [] {
    const char* text = std::getenv("DOUBLE_DEVICES");
    return text == nullptr ? 2 : std::clamp(std::atoi(text), 0, most_devices);
  }();
  return count;
}

int current_device() { return device_now; }

void set_device(int device) {
  if (device < 0 || device >= device_count()) throw std::runtime_error("CUDA error: invalid device ordinal");
  device_now = device;
}

std::int64_t current_stream(int device) { return streams_now.at(static_cast<std::size_t>(device)); }

std::int64_t exchange_stream(int device, std::int64_t stream) {
  return std::exchange(streams_now.at(static_cast<std::size_t>(device)), stream);
}

std::int64_t new_stream() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.next_stream++;
}

double bytes_of(const std::vector<Access>& accesses) {
  double bytes = 0;
  for (const Access& access : accesses) bytes += static_cast<double>(access.moved > 0 ? access.moved : access.bytes);
  return bytes;
}

void enqueue(const char* operation, int device, std::int64_t stream, const std::vector<Access>& accesses) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const std::uint32_t number = number_of(s, device, stream);
  Clock& clock = s.clocks[number];
  clock.join(s.host);
  if (clock.ticks.size() <= number) clock.ticks.resize(number + 1);
  const std::uint64_t tick = ++clock.ticks[number];
  // Reads before writes: x.add_(1) on fresh memory reads it.
  for (const bool write : {false, true}) {
    for (const Access& access : accesses) {
      if (access.write != write || access.bytes == 0 || access.begin == nullptr) continue;
      const auto it = block_at(s, access.begin);
      if (it == s.blocks.end()) {
        add_finding(Kind::freed_in_use, std::string(operation) + " uses memory that is not allocated");
        continue;
      }
      const auto low = static_cast<std::size_t>(static_cast<const char*>(access.begin) - it->first);
      access_block(s, it->second, {low, low + access.bytes, number, tick, write, operation});
    }
  }
}

void begin_block(char* begin, std::size_t bytes, int device, std::int64_t stream) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.blocks[begin] = Block{.bytes = bytes,
                          .device = device,
                          .owner = number_of(s, device, stream),
                          .accesses = {},
                          .written = {},
                          .recorded = {}};
}

void end_block(char* begin) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto it = s.blocks.find(begin);
  if (it == s.blocks.end()) return;
  const Block& block = it->second;
  // The caching allocator may give the block to the next allocation of its stream at once.
  for (const Done& done : block.accesses) {
    if (done.stream == block.owner || s.clocks[block.owner].covers(done.stream, done.tick) ||
        s.host.covers(done.stream, done.tick) || block.recorded.contains(done.stream)) {
      continue;
    }
    add_finding(Kind::freed_in_use, "memory of " + name_of(s, block.owner) + " is freed while " +
                                        name_of(s, done.stream) + " may still " + (done.write ? "write" : "read") +
                                        " it (" + done.operation + "): neither a wait nor record_stream");
  }
  s.blocks.erase(it);
}

std::string describe_block(const void* pointer) {
  State& s = state();
  const std::unique_lock lock(s.mutex, std::try_to_lock);  // called by the handler of a host access
  if (!lock) return "an allocation in use by another thread";
  const auto it = block_at(s, pointer);
  if (it == s.blocks.end()) return "no allocation";
  return "byte " + std::to_string(static_cast<const char*>(pointer) - it->first) + " of " +
         std::to_string(it->second.bytes) + ", last written by " + it->second.writer;
}

void record_stream(const void* pointer, int device, std::int64_t stream) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (const auto it = block_at(s, pointer); it != s.blocks.end()) {
    it->second.recorded.insert(number_of(s, device, stream));
  }
}

void* event_record(void* event, int device, std::int64_t stream) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  Event* e = event == nullptr ? new Event : static_cast<Event*>(event);
  e->stream = number_of(s, device, stream);
  e->clock = s.clocks[e->stream];
  e->clock.join(s.host);
  e->asked = false;
  e->time = std::chrono::steady_clock::now();
  return e;
}

void event_destroy(void* event) { delete static_cast<Event*>(event); }

void event_block(void* event, int device, std::int64_t stream) {
  if (event == nullptr) return;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.clocks[number_of(s, device, stream)].join(static_cast<Event*>(event)->clock);
}

bool event_query(void* event) {
  if (event == nullptr) return true;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  auto* e = static_cast<Event*>(event);
  if (!e->asked && !s.host.covers(e->clock)) {
    e->asked = true;
    return false;
  }
  s.host.join(e->clock);
  return true;
}

double event_milliseconds(void* event) {
  return std::chrono::duration<double, std::milli>(static_cast<Event*>(event)->time.time_since_epoch()).count();
}

void host_waits(Wait kind, const std::string& operation, int device, std::int64_t stream) {
  count_wait(kind, operation);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.host.join(s.clocks[number_of(s, device, stream)]);
}

void host_waits_event(void* event) {
  if (event == nullptr) return;
  static const char* const milliseconds = std::getenv("DOUBLE_EVENT_MS");
  if (milliseconds != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(milliseconds)));
  bool runs_dry = false;
  {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    const auto* e = static_cast<const Event*>(event);
    s.host.join(e->clock);
    const auto ticks = [&](const Clock& c) { return e->stream < c.ticks.size() ? c.ticks[e->stream] : 0; };
    runs_dry = ticks(s.clocks[e->stream]) < ticks(e->clock) + kernels_ahead;
  }
  if (runs_dry) count_wait(Wait::event, "event");
}

void host_waits_device(int device) {
  count_wait(Wait::device, "device");
  State& s = state();
  const std::lock_guard lock(s.mutex);
  for (const auto& [key, number] : s.numbers) {
    if (key.first == device) s.host.join(s.clocks[number]);
  }
}

const char* kept(const std::string& text) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.texts.insert(text).first->c_str();
}

}  // namespace cuda_double
