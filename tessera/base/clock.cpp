#include <tessera/base/clock.h>

#include <time.h>

namespace tessera {

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

double seconds_since(std::int64_t begin_ns) { return static_cast<double>(monotonic_ns() - begin_ns) * 1e-9; }

}  // namespace tessera
