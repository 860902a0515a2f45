#pragma once
/// \file
/// Time in tests. Seconds on a clock decide nothing by themselves: the same test runs on old processors, under
/// sanitizers, and beside programs that take most of the machine. Limits and time-outs grow with all three:
///
///   Stopwatch watch;  ...;  EXPECT_LT(watch.seconds(), watch.limit(2));   // what must end soon
///   options.timeout = patience(20);                                       // what must not be hit, or is waited for
///
/// A limit tells "at once" from "after the time-out", so the time-out of what a test waits for has to be ten times the
/// limit or more. That work grows in proportion to its input is another test: tests/growth.h.

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tessera::testing {

/// Seconds of a clock of man 2 clock_gettime.
inline double seconds_on(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// How many times as long as without it a program takes under the sanitizer that this unit is built for.
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

/// How many times as long as on a processor of 3 GHz this build takes here; 1 at least. Measured once per process, by
/// the time on a processor of a chain of multiplications, which other programs do not lengthen.
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
      [[maybe_unused]] const volatile std::uint64_t used = x;  // or the compiler would leave the loop out
      best = std::min(best, seconds_on(CLOCK_THREAD_CPUTIME_ID) - begin);
    }
    return std::max(1.0, best / usual) * sanitizer_slowness();
  }();
  return measured;
}

namespace detail {

/// A number of the first line of /proc/pressure/cpu, which tells of tasks that waited for a processor; negative:
/// the kernel does not say.
inline double cpu_pressure(const char* key) {
  std::ifstream file("/proc/pressure/cpu");
  std::string line;
  const auto at = std::getline(file, line) ? line.find(key) : std::string::npos;
  return at == std::string::npos ? -1 : std::strtod(line.c_str() + at + std::char_traits<char>::length(key), nullptr);
}

/// By what a time grows when somebody waited for a processor in this share of it, up to `most`, which it is, too, where
/// the share is unknown (negative).
inline double stretch(double share, double most) { return share < 0 ? most : 1 + (most - 1) * std::min(share, 1.0); }

}  // namespace detail

/// `quiet` seconds of a quiet machine, here and now: for time-outs, which have to be said before anything has run.
/// Up to four times slowness() as many. Another call may give another value, so a test that needs one twice keeps it.
inline double patience(double quiet) {
  return quiet * slowness() * detail::stretch(detail::cpu_pressure("avg10=") / 100, 4);
}
inline std::chrono::milliseconds patience(std::chrono::milliseconds quiet) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(patience(static_cast<double>(quiet.count()))));
}

/// Runs from its construction on.
class Stopwatch {
 public:
  double seconds() const { return seconds_on(CLOCK_MONOTONIC) - begin_; }

  /// `quiet` seconds times slowness(), if nobody waited for a processor since the construction; six times as many if
  /// somebody always did, or where the kernel does not tell.
  double limit(double quiet) const {
    const double waited = waited_seconds();
    const bool unknown = waited < 0 || waited_at_begin_ < 0;
    return quiet * slowness() * detail::stretch(unknown ? -1 : (waited - waited_at_begin_) / (seconds() + 1e-6), 6);
  }

 private:
  /// Seconds since the start of the machine in which at least one task waited for a processor; negative: unknown.
  static double waited_seconds() { return detail::cpu_pressure("total=") * 1e-6; }

  double begin_ = seconds_on(CLOCK_MONOTONIC);
  double waited_at_begin_ = waited_seconds();
};

}  // namespace tessera::testing
