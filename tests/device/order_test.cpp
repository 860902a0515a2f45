// The double of the device: faults that its clocks and its memory detect, each next to correct code.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <gtest/gtest.h>
#include <tests/distributed/harness.h>
#include <tests/double/memory.h>
#include <tests/double/order.h>

namespace {

using cuda_double::findings;
using cuda_double::Kind;

const c10::Device cuda(c10::kCUDA, 0);

const c10::impl::VirtualGuardImpl& device() {
  static const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  return guard;
}

c10::Stream compute_stream() { return device().getStream(cuda); }
c10::Stream side_stream() { return device().getNewStream(cuda); }

void wait_between(c10::Stream earlier, c10::Stream later) {
  c10::Event event(c10::kCUDA);
  event.record(earlier);
  event.block(later);
}

/// Number of findings of `kind` that `work` adds; clears all findings afterwards.
template <class Work>
std::size_t found(Kind kind, Work work) {
  work();
  const std::size_t count = findings(kind);
  cuda_double::forget_findings();
  return count;
}

/// compute -> side -> compute, with or without the waits before and after.
void overlap(bool before, bool behind) {
  const c10::Stream compute = compute_stream(), side = side_stream();
  const at::Tensor a = at::ones({1000}, cuda);
  at::Tensor b = at::empty({1000}, cuda);
  if (before) wait_between(compute, side);
  {
    const c10::StreamGuard on(side);
    at::add_out(b, a, a);
  }
  if (behind) wait_between(side, compute);
  const at::Tensor c = b * 2;
}

TEST(DoubleOrder, WorkOnAnotherStreamIsWaitedForBeforeAndBehind) {
  EXPECT_EQ(found(Kind::race, [] { overlap(true, true); }), 0U);
  EXPECT_EQ(found(Kind::race, [] { overlap(false, true); }), 1U);
  EXPECT_EQ(found(Kind::race, [] { overlap(true, false); }), 1U);
}

TEST(DoubleOrder, AWriteWaitsForTheReaderOnAnotherStream) {
  const auto work = [](bool wait) {
    const c10::Stream compute = compute_stream(), side = side_stream();
    const at::Tensor a = at::ones({1000}, cuda);
    at::Tensor b = at::empty({1000}, cuda);
    wait_between(compute, side);
    {
      const c10::StreamGuard on(side);
      b.copy_(a);
    }
    if (wait) wait_between(side, compute);
    a.mul_(2);
    wait_between(side, compute);
  };
  EXPECT_EQ(found(Kind::race, [&] { work(false); }), 1U);
  EXPECT_EQ(found(Kind::race, [&] { work(true); }), 0U);
}

TEST(DoubleOrder, SlicesOfOneBufferMayBeWrittenByTwoStreams) {
  const auto work = [](std::int64_t second_begin) {
    const c10::Stream compute = compute_stream(), side = side_stream();
    const at::Tensor a = at::ones({8, 128}, cuda);
    wait_between(compute, side);
    {
      const c10::StreamGuard on(side);
      a.narrow(1, 0, 64).mul_(2);
    }
    a.narrow(1, second_begin, 64).mul_(3);
    wait_between(side, compute);
  };
  EXPECT_EQ(found(Kind::race, [&] { work(64); }), 0U);
  EXPECT_GE(found(Kind::race, [&] { work(63); }), 1U);
}

TEST(DoubleOrder, AHostThatWaitedOrdersWhatItEnqueues) {
  const auto work = [](bool wait) {
    const c10::Stream side = side_stream();
    at::Tensor a = at::empty({1000}, cuda);
    {
      const c10::StreamGuard on(side);
      a.fill_(1);
    }
    if (wait) side.synchronize();
    a.mul_(2);
  };
  EXPECT_EQ(found(Kind::race, [&] { work(true); }), 0U);
  EXPECT_GE(found(Kind::race, [&] { work(false); }), 1U);
}

TEST(DoubleOrder, MemoryInUseByAnotherStreamIsNotFreed) {
  const auto work = [](bool record) {
    const c10::Stream compute = compute_stream(), side = side_stream();
    at::Tensor a = at::ones({1000}, cuda);
    at::Tensor b = at::empty({1000}, cuda);
    wait_between(compute, side);
    {
      const c10::StreamGuard on(side);
      b.copy_(a);
      if (record) a.record_stream(side);
    }
    a.reset();
    wait_between(side, compute);
  };
  EXPECT_EQ(found(Kind::freed_in_use, [&] { work(false); }), 1U);
  EXPECT_EQ(found(Kind::freed_in_use, [&] { work(true); }), 0U);
}

TEST(DoubleMemory, ReadsOfWhatNothingWroteAreFound) {
  EXPECT_EQ(found(Kind::uninitialized, [] { at::empty({10}, cuda).add_(1); }), 1U);
  const auto sum_after = [](std::int64_t written) {
    const at::Tensor a = at::empty({4, 10}, cuda);
    a.narrow(1, 0, written).zero_();
    a.narrow(1, 9, 1).zero_();
    a.sum();
  };
  EXPECT_EQ(found(Kind::uninitialized, [&] { sum_after(9); }), 0U);
  EXPECT_EQ(found(Kind::uninitialized, [&] { sum_after(8); }), 1U);
}

TEST(DoubleMemory, OperatorsRefuseTwoDevices) {
  const at::Tensor here = at::ones({2}, cuda), there = at::ones({2}, c10::Device(c10::kCUDA, 1));
  EXPECT_THROW(here + there, c10::Error);
  EXPECT_THROW(here.add_(at::ones({2})), c10::Error);
  EXPECT_NO_THROW(here.add_(at::scalar_tensor(2)));  // a host scalar is passed as a kernel argument
  cuda_double::forget_findings();
}

TEST(DoubleMemory, AHostAccessEndsTheProcessWithTheAllocation) {
  const at::Tensor a = at::ones({8}, cuda);
  EXPECT_EXIT(std::printf("%f", static_cast<double>(*static_cast<const float*>(a.data_ptr()))),
              testing::ExitedWithCode(cuda_double::host_access_exit), "byte 0 of 32, last written by aten::fill_");
}

TEST(DoubleMemory, WaitsOfTheHostAreCounted) {
  const at::Tensor a = at::ones({8}, cuda);
  const auto count = [](auto work) {
    const std::size_t before = cuda_double::waits();
    work();
    return cuda_double::waits() - before;
  };
  EXPECT_EQ(count([&] { static_cast<void>(a * 2 + a); }), 0U);
  EXPECT_EQ(count([&] { static_cast<void>(a.sum().item<float>()); }), 1U);
  EXPECT_EQ(count([&] { static_cast<void>(a.cpu()); }), 1U);
  EXPECT_EQ(count([&] { static_cast<void>(at::ones({8}).to(cuda)); }), 1U);
  EXPECT_EQ(count([&] { static_cast<void>(at::ones({8}).pin_memory().to(cuda, /*non_blocking=*/true)); }), 0U);
  EXPECT_EQ(count([&] { static_cast<void>(at::nonzero(a)); }), 1U);
}

TEST(DoubleMemory, ResultsAreTheCpusToTheBit) {
  tessera::testing::RankOptions options;  // a separate process: backward starts threads
  options.init.device = tessera::Device::cuda;
  const auto body = [](tessera::comm::World&) {
    at::manual_seed(1);
    const at::Tensor x = at::randn({4, 16}), w = at::randn({16, 16}), g = at::ones({16}), b = at::zeros({16});
    const auto compute = [&](c10::Device d) {
      at::Tensor weight = w.to(d).requires_grad_();
      const at::Tensor y = at::layer_norm(at::linear(x.to(d), weight), {16}, g.to(d), b.to(d));
      at::gelu(y).square().sum().backward();
      return weight.grad().cpu();
    };
    EXPECT_TRUE(at::equal(compute(cuda), compute(c10::Device(c10::kCPU))));
  };
  tessera::testing::run_ranks(1, body, options);
}

}  // namespace
