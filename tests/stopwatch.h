#pragma once
/// \file
/// Time in tests. No test depends on wall-clock seconds alone, because tests run on old processors, under sanitizers,
/// and next to programs that occupy most of the machine. Limits and time-outs grow with all three:
///
///   Stopwatch watch;  ...;  EXPECT_LT(watch.seconds(), watch.limit(2));   // must end soon
///   options.timeout = patience(20);                                       // must not expire, or is waited for
///
/// A limit distinguishes "at once" from "after the time-out", so the time-out must be at least ten times the limit. To
/// test that work grows linearly with its input, use tests/growth.h.

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tessera::testing {

/// Reading of a clock of clock_gettime(2), in seconds.
inline double seconds_on(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Factor by which the sanitizer of this build slows a program down; 1 without a sanitizer.
constexpr double sanitizer_slowness() {
#if defined(__SANITIZE_THREAD__)
  return 10;
#elif defined(__SANITIZE_ADDRESS__)
  return 2;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
  return 10;
#elif __has_feature(address_sanitizer)
  return 2;
#else
  return 1;
#endif
#else
  return 1;
#endif
}

/// Factor by which this build is slower here than on a 3 GHz processor; at least 1. Measured once per process as the
/// CPU time of a chain of multiplications, which other programs do not affect.
inline double slowness() {
  static const double measured = [] {
    constexpr int steps = 200'000;
#ifdef __OPTIMIZE__
    constexpr double usual = 0.26e-3;  // four cycles a step
#else
    constexpr double usual = 0.75e-3;  // x is in memory
#endif
    double best = 1;
    std::uint64_t x = 1;
    for (int round = 0; round < 6; ++round) {
      const double begin = seconds_on(CLOCK_THREAD_CPUTIME_ID);
      for (int i = 0; i < steps; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
      [[maybe_unused]] const volatile std::uint64_t used = x;  // otherwise the compiler would remove the loop
      best = std::min(best, seconds_on(CLOCK_THREAD_CPUTIME_ID) - begin);
    }
    return std::max(1.0, best / usual) * sanitizer_slowness();
  }();
  return measured;
}

namespace detail {

/// A number from the first line of /proc/pressure/cpu, which reports tasks that waited for a processor; negative: the
/// kernel does not report it.
inline double cpu_pressure(const char* key) {
  std::ifstream file("/proc/pressure/cpu");
  std::string line;
  const auto at = std::getline(file, line) ? line.find(key) : std::string::npos;
  return at == std::string::npos ? -1 : std::strtod(line.c_str() + at + std::char_traits<char>::length(key), nullptr);
}

/// Factor for a time during which some task waited for a processor in the fraction `share` of it: 1 to `most`; `most`
/// if the share is unknown (negative).
inline double stretch(double share, double most) { return share < 0 ? most : 1 + (most - 1) * std::min(share, 1.0); }

}  // namespace detail

/// Scales `quiet` seconds of a quiet machine to this machine and its current load: for time-outs, which must be set in
/// advance. The factor is slowness() to 4 x slowness(). Results differ between calls, so a test that needs one twice
/// stores it.
inline double patience(double quiet) {
  return quiet * slowness() * detail::stretch(detail::cpu_pressure("avg10=") / 100, 4);
}
inline std::chrono::milliseconds patience(std::chrono::milliseconds quiet) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(patience(static_cast<double>(quiet.count()))));
}

/// Starts when constructed.
class Stopwatch {
 public:
  double seconds() const { return seconds_on(CLOCK_MONOTONIC) - begin_; }

  /// `quiet` seconds times slowness() if no task has waited for a processor since construction; up to six times as many
  /// if some task always waited, or if the kernel does not report it.
  double limit(double quiet) const {
    const double waited = waited_seconds();
    const bool unknown = waited < 0 || waited_at_begin_ < 0;
    return quiet * slowness() * detail::stretch(unknown ? -1 : (waited - waited_at_begin_) / (seconds() + 1e-6), 6);
  }

 private:
  /// Seconds since boot during which at least one task waited for a processor; negative: unknown.
  static double waited_seconds() { return detail::cpu_pressure("total=") * 1e-6; }

  double begin_ = seconds_on(CLOCK_MONOTONIC);
  double waited_at_begin_ = waited_seconds();
};

}  // namespace tessera::testing
