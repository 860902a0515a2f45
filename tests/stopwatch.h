#pragma once
/// \file
/// Time limits in tests that run on machines which others use as well: a limit that holds on a quiet machine grows with
/// the share of the time in which somebody here waited for a processor. Real errors of that kind (a wait for a timeout
/// of half a minute) are still found on the busiest machine.

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tessera::testing {

/// Runs from its construction on.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

  /// `quiet` seconds, if nobody waited for a processor since the construction; four times as many if somebody always
  /// did. Where the kernel does not tell (no /proc/pressure/cpu): twice as many.
  double limit(double quiet) const {
    const double waited = waited_seconds();
    if (waited < 0 || waited_at_begin_ < 0) return 2 * quiet;
    const double share = (waited - waited_at_begin_) / (seconds() + 1e-6);
    return quiet * (1 + 3 * (share > 1 ? 1 : share));
  }

 private:
  /// Seconds since the start of the machine in which at least one task waited for a processor; negative: unknown.
  static double waited_seconds() {
    std::ifstream file("/proc/pressure/cpu");
    std::string line;
    const auto at = std::getline(file, line) ? line.find("total=") : std::string::npos;
    return at == std::string::npos ? -1 : std::strtod(line.c_str() + at + 6, nullptr) * 1e-6;
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double waited_at_begin_ = waited_seconds();
};

}  // namespace tessera::testing
