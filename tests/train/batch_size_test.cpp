// Retries with a smaller micro-batch when memory runs out.

#include <tessera/train/loop/batch_size.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>

#include <new>

#include <tessera/base/error.h>
#include <tessera/config/core/run_config.h>
#include <tessera/train/reporting/metrics.h>
#include "one_rank.h"

namespace tessera::train {
namespace {

OptimizationConfig config_of(std::int64_t rows, std::int64_t accumulation) {
  OptimizationConfig config;
  config.per_device_train_batch_size = rows;
  config.gradient_accumulation_steps = accumulation;
  return config;
}

TEST(HalveBatchSize, KeepsTheRowsOfAStep) {
  OptimizationConfig config = config_of(8, 1);
  EXPECT_EQ(halve_batch_size(config),
            "--auto_find_batch_size: 8 rows per process do not fit into memory; trying 4 in 2 micro-batches, the same "
            "8 rows per process and step");
  EXPECT_EQ(config.per_device_train_batch_size, 4);
  EXPECT_EQ(config.gradient_accumulation_steps, 2);
  config = config_of(5, 1);
  halve_batch_size(config);
  EXPECT_EQ(config.per_device_train_batch_size, 1) << "2 does not divide 5 rows";
  EXPECT_EQ(config.gradient_accumulation_steps, 5);
  EXPECT_THROW(halve_batch_size(config), Error);
}

RC_GTEST_PROP(HalveBatchSizeProperty, TheProductStays, ()) {
  OptimizationConfig config = config_of(*rc::gen::inRange(2, 200), *rc::gen::inRange(1, 9));
  const std::int64_t before = config.per_device_train_batch_size, rows = before * config.gradient_accumulation_steps;
  halve_batch_size(config);
  RC_ASSERT(config.per_device_train_batch_size * config.gradient_accumulation_steps == rows);
  RC_ASSERT(config.per_device_train_batch_size >= 1);
  RC_ASSERT(2 * config.per_device_train_batch_size <= before);
}

TEST(FitsEverywhere, MemoryThatRunsOutIsToldFromOtherErrors) {
  const comm::Group& group = one_rank();
  EXPECT_TRUE(fits_everywhere(group, [] {}));
  EXPECT_FALSE(fits_everywhere(group, [] { throw std::bad_alloc(); }));
  EXPECT_FALSE(fits_everywhere(group, [] { at::empty({std::int64_t{1} << 60}, at::kByte); })) << "LibTorch's own error";
  EXPECT_THROW(fits_everywhere(group, [] { throw InputError("something else"); }), InputError);
}

TEST(FitsEverywhere, AMemoryLimitIsSeen) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(resident_bytes()) + (std::uint64_t{256} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &low), 0);
  const auto probe = [](std::int64_t mebibytes) { return [=] { at::zeros({mebibytes << 20}, at::kByte).add_(1); }; };
  const bool large = fits_everywhere(one_rank(), probe(1024)), small = fits_everywhere(world().group(), probe(4));
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_FALSE(large);
  EXPECT_TRUE(small);
}

TEST(AutomaticBatchSize, NeedsPassesThatAreNotCollective) {
  RunConfig config;
  config.optimization.auto_find_batch_size = true;
  check_automatic_batch_size(config, 2);
  config.sharding.strategy = Strategy::full_shard;
  check_automatic_batch_size(config, 1);
  EXPECT_THROW(check_automatic_batch_size(config, 2), InputError);
  config.sharding.strategy = Strategy::zero1;
  check_automatic_batch_size(config, 2);
  config.parallel.deterministic_reduce = true;
  EXPECT_THROW(check_automatic_batch_size(config, 1), InputError);
}

}  // namespace
}  // namespace tessera::train
