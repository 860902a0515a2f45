// Runs jobs in the background; a newer job replaces one that has not started.

#include <gtest/gtest.h>

#include <tessera/train/reporting/latest_job.h>

#include <future>
#include <memory>
#include <vector>

namespace tessera::train {
namespace {

TEST(LatestJob, WhoeverSubmitsIsNotHeldUpAndOnlyTheLatestWaits) {
  std::vector<int> done;
  std::promise<void> begun, disk_moves;
  LatestJob jobs("test");
  jobs.submit([&] {
    begun.set_value();
    disk_moves.get_future().wait();
    done.push_back(0);
  });
  begun.get_future().wait();
  const auto held = std::make_shared<int>(0);
  for (int i = 1; i <= 1000; ++i) jobs.submit([&done, i, held] { done.push_back(i); });
  EXPECT_LE(held.use_count(), 2) << "jobs that will never run are kept";
  disk_moves.set_value();
  jobs.finish();
  EXPECT_EQ(done, (std::vector<int>{0, 1000}));
  jobs.submit([&] { done.push_back(2000); });
  jobs.finish();
  EXPECT_EQ(done.back(), 2000);
}

TEST(LatestJob, WhatWaitsIsDoneBeforeItGoes) {
  bool done = false;
  {
    LatestJob jobs("test");
    jobs.submit([&] { done = true; });
  }
  EXPECT_TRUE(done);
  const LatestJob idle("test");
}

TEST(LatestJob, FinishingNothingReturns) {
  LatestJob jobs("test");
  jobs.finish();
}

}  // namespace
}  // namespace tessera::train
