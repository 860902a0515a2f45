#include <tests/double/findings.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace cuda_double {
namespace {

constexpr int most_frames = 40;

struct Stack {
  std::array<void*, most_frames> frames{};
  int depth = 0;
  bool operator<(const Stack& other) const {
    return std::lexicographical_compare(frames.begin(), frames.begin() + depth, other.frames.begin(),
                                        other.frames.begin() + other.depth);
  }
};

Stack own_stack() {
  Stack stack;
  stack.depth = backtrace(stack.frames.data(), most_frames);
  return stack;
}

struct Finding {
  Kind kind;
  std::string text;
  Stack stack;
  std::size_t count;
};

struct State {
  std::mutex mutex;
  std::vector<Finding> findings;
  std::map<std::pair<std::string, Stack>, std::size_t> waits;
  std::size_t wait_count = 0;
  struct Calls {
    std::size_t count = 0;
    Cost cost;
  };
  std::map<std::string, Calls> operations;

  State() {
    void* frame[1];
    backtrace(frame, 1);  // loads libgcc early: the handler of a host access must not
    std::atexit([] { write_report(); });
  }
};

State& state() {
  static State* s = new State;  // outlives static destructors, which still free tensors
  return *s;
}

const char* name(Kind kind) {
  static constexpr const char* names[] = {"race",         "uninitialized", "freed_in_use", "mixed_devices",
                                          "wrong_device", "no_kernel",     "host_access",  "not_here"};
  return names[static_cast<int>(kind)];
}

const char* name(Wait wait) {
  static constexpr const char* names[] = {"item", "to_host", "to_device", "shape", "stream", "event", "device"};
  return names[static_cast<int>(wait)];
}

void write_frames(int descriptor, const Stack& stack) {
  for (int i = 0; i < stack.depth; ++i) {
    void* frame = stack.frames[static_cast<std::size_t>(i)];
    Dl_info info{};
    if (dladdr(frame, &info) == 0 || info.dli_fname == nullptr) continue;
    dprintf(descriptor, "    %s +0x%tx\n", info.dli_fname,
            static_cast<char*>(frame) - static_cast<char*>(info.dli_fbase));
  }
}

}  // namespace

void add_finding(Kind kind, const std::string& text) {
  State& s = state();
  const Stack stack = own_stack();
  const std::lock_guard lock(s.mutex);
  for (Finding& known : s.findings) {
    if (known.kind == kind && known.text == text) {
      ++known.count;
      return;
    }
  }
  s.findings.push_back({kind, text, stack, 1});
}

std::size_t findings(Kind kind) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return static_cast<std::size_t>(
      std::count_if(s.findings.begin(), s.findings.end(), [&](const Finding& f) { return f.kind == kind; }));
}

bool is_double() { return true; }

std::size_t all_findings() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.findings.size();
}

void forget_findings() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.findings.clear();
}

void count_wait(Wait kind, const std::string& operation) {
  State& s = state();
  const Stack stack = own_stack();
  const std::lock_guard lock(s.mutex);
  ++s.wait_count;
  ++s.waits[{std::string(name(kind)) + " " + operation, stack}];
}

std::size_t waits() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.wait_count;
}

void count_operation(const std::string& operation, Cost cost) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  State::Calls& calls = s.operations[operation];
  ++calls.count;
  calls.cost.bytes += cost.bytes;
  calls.cost.flops += cost.flops;
}

void write_own_stack(int descriptor) { write_frames(descriptor, own_stack()); }

void write_report() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const char* file = std::getenv("DOUBLE_REPORT");
  if (file == nullptr) {
    for (const Finding& f : s.findings)
      std::fprintf(stderr, "FINDING %s x%zu %s\n", name(f.kind), f.count, f.text.c_str());
    return;
  }
  const char* rank = std::getenv("RANK");
  const std::string path =
      std::string(file) + ".rank" + (rank == nullptr ? "0" : rank) + "." + std::to_string(getpid());
  FILE* out = std::fopen(path.c_str(), "w");
  if (out == nullptr) {
    std::fprintf(stderr, "the double of the device cannot write its report %s\n", path.c_str());
    return;
  }
  std::fprintf(out, "REPORT findings %zu waits %zu\n", s.findings.size(), s.wait_count);
  for (const Finding& f : s.findings) {
    std::fprintf(out, "FINDING %s x%zu %s\n", name(f.kind), f.count, f.text.c_str());
    std::fflush(out);
    write_frames(fileno(out), f.stack);
  }
  for (const auto& [key, count] : s.waits) {
    std::fprintf(out, "WAIT x%zu %s\n", count, key.first.c_str());
    std::fflush(out);
    write_frames(fileno(out), key.second);
  }
  for (const auto& [operation, calls] : s.operations)
    std::fprintf(out, "OPERATION x%zu %s bytes %.0f flops %.0f\n", calls.count, operation.c_str(), calls.cost.bytes,
                 calls.cost.flops);
  std::fclose(out);
}

}  // namespace cuda_double
