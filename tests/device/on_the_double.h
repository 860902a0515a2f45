#pragma once
/// \file
/// Ranks of tests whose devices are the double's or, in device_check, a real card.

#include <tests/distributed/harness.h>
#include <tests/double/findings.h>

#include <functional>

namespace tessera::testing {

inline RankOptions on_device() {
  RankOptions options;
  options.init.device = Device::cuda;
  return options;
}

/// Runs the body in a separate process, because backward starts threads; there must be no finding.
inline void on_the_double(const std::function<void()>& body) {
  run_ranks(
      1,
      [&](comm::World&) {
        body();
        EXPECT_EQ(cuda_double::all_findings(), 0U);
        if (cuda_double::all_findings() > 0) cuda_double::write_report();  // the process runs no destructors
      },
      on_device());
}

}  // namespace tessera::testing
