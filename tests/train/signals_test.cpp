#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include <tessera/nn/gemm.h>
#include <tessera/train/loop/signals.h>

namespace tessera::train {
namespace {

TEST(StopSignals, RequestsAreSeenAndInterruptOutranks) {
  {
    const StopSignals signals;
    EXPECT_EQ(signals.requested(), StopRequest::none);
    std::raise(SIGTERM);
    EXPECT_EQ(signals.requested(), StopRequest::terminate);
    std::raise(SIGINT);
    EXPECT_EQ(signals.requested(), StopRequest::interrupt);
  }
  const StopSignals again;
  EXPECT_EQ(again.requested(), StopRequest::none);
}

// oneDNN's products use the stack pointer for data: a handler on that stack would overwrite the heap, as happened in
// one of thirty runs that were asked to stop. Without the signal stack this test crashes within a few hundred signals.
TEST(StopSignals, DoNotDisturbMatrixProducts) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    at::set_num_threads(1);
    const StopSignals signals;
    if (::write(ready[1], "x", 1) != 1) ::_exit(2);
    const at::Tensor x = at::ones({96, 32}), w = at::ones({257, 32});
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
    bool right = true;
    while (std::chrono::steady_clock::now() < end) {
      const at::Tensor y = at::empty({96, 257}), dw = at::empty({257, 32});
      nn::multiply(y, x, w.t());
      nn::multiply(dw, y.t(), x);
      right = right && y[95][256].item<float>() == 32 && dw[256][31].item<float>() == 32 * 96;
    }
    ::_exit(right && signals.requested() == StopRequest::terminate ? 0 : 1);
  }
  int status = 0;
  ::close(ready[1]);
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "the handlers are installed";
  ::close(ready[0]);
  while (::waitpid(child, &status, WNOHANG) == 0) {
    ::kill(child, SIGTERM);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
}  // namespace tessera::train
