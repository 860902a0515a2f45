#include <tests/double/findings.h>
#include <tests/double/memory.h>
#include <tests/double/order.h>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace cuda_double {
namespace {

constexpr std::size_t region = std::size_t{1} << 35;  // bytes of address space per device
constexpr std::size_t devices = 8;
constexpr std::size_t grain = 512;  // CUDA's caching allocator rounds to this many bytes

struct Allocation {
  std::size_t rounded;
  int device;
  std::int64_t stream;
};

struct State {
  std::mutex mutex;
  char* device_base = nullptr;
  char* mirror_base = nullptr;
  std::array<std::size_t, devices> top{}, now{}, peak{};  // bytes
  std::map<char*, Allocation> allocations;
  // By (device, stream, rounded bytes), as in CUDA's caching allocator: memory stays with its stream.
  std::map<std::tuple<int, std::int64_t, std::size_t>, std::vector<char*>> free_lists;
  struct sigaction former{};

  State();
};

State& state() {
  static State* s = new State;  // outlives static destructors, which still free tensors
  return *s;
}

/// Handles SIGSEGV. The fault comes from host code between allocations, so this may allocate and print.
void host_access(int number, siginfo_t* info, void* context) {
  if (is_device(info->si_addr)) {
    const std::string text = "the host touched memory of cuda:" + std::to_string(device_of(info->si_addr)) + " (" +
                             describe_block(info->si_addr) + ")";
    std::fprintf(stderr, "the double of the device: %s\n", text.c_str());
    write_own_stack(STDERR_FILENO);
    add_finding(Kind::host_access, text);
    write_report();
    _exit(host_access_exit);
  }
  const struct sigaction& former = state().former;
  if ((former.sa_flags & SA_SIGINFO) != 0 && former.sa_sigaction != nullptr) {
    former.sa_sigaction(number, info, context);
  } else {
    signal(number, SIG_DFL);
    raise(number);
  }
}

State::State() {
  const auto reserve = [](int protection) {
    void* p = mmap(nullptr, region * devices, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::runtime_error("the double of the device: no addresses for device memory");
    madvise(p, region * devices, MADV_DONTDUMP);
    return static_cast<char*>(p);
  };
  device_base = reserve(PROT_NONE);
  mirror_base = reserve(PROT_READ | PROT_WRITE);
  struct sigaction action{};
  action.sa_sigaction = &host_access;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &former);
}

}  // namespace

void* allocate(std::size_t bytes, int device, std::int64_t stream) {
  if (bytes == 0) return nullptr;
  State& s = state();
  const std::size_t rounded = (bytes + grain - 1) / grain * grain;
  const auto d = static_cast<std::size_t>(device);
  char* p = nullptr;
  {
    const std::lock_guard lock(s.mutex);
    std::vector<char*>& ready = s.free_lists[{device, stream, rounded}];
    if (!ready.empty()) {
      p = ready.back();
      ready.pop_back();
    } else {
      if (s.top[d] + rounded > region) throw std::runtime_error("CUDA out of memory (the double of the device)");
      p = s.device_base + d * region + s.top[d];
      s.top[d] += rounded;
    }
    s.allocations[p] = {rounded, device, stream};
    s.now[d] += rounded;
    s.peak[d] = std::max(s.peak[d], s.now[d]);
  }
  std::memset(mirror(p), 0xFF, rounded);
  begin_block(p, bytes, device, stream);
  return p;
}

void release(void* pointer) {
  if (pointer == nullptr) return;
  auto* p = static_cast<char*>(pointer);
  end_block(p);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto it = s.allocations.find(p);
  if (it == s.allocations.end()) throw std::runtime_error("the double of the device: memory is released twice");
  const Allocation& a = it->second;
  s.now[static_cast<std::size_t>(a.device)] -= a.rounded;
  s.free_lists[{a.device, a.stream, a.rounded}].push_back(p);
  s.allocations.erase(it);
}

bool is_device(const void* pointer) {
  const State& s = state();
  return pointer >= s.device_base && pointer < s.device_base + region * devices;
}

int device_of(const void* pointer) {
  return static_cast<int>(static_cast<std::size_t>(static_cast<const char*>(pointer) - state().device_base) / region);
}

void* mirror(const void* pointer) {
  if (pointer == nullptr) return nullptr;
  if (!is_device(pointer)) throw std::runtime_error("CUDA error: a host pointer where device memory is expected");
  const State& s = state();
  return s.mirror_base + (static_cast<const char*>(pointer) - s.device_base);
}

std::size_t bytes_in_use(int device) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.now.at(static_cast<std::size_t>(device));
}

std::size_t bytes_peak(int device) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.peak.at(static_cast<std::size_t>(device));
}

void reset_peak(int device) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.peak.at(static_cast<std::size_t>(device)) = s.now.at(static_cast<std::size_t>(device));
}

}  // namespace cuda_double
