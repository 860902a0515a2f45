#include <tessera/base/clock.h>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

using namespace tessera;

/// A process compares its own clock with times that another process writes to the board.
TEST(Clock, IsTheSameInEveryProcess) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::int64_t before = monotonic_ns();
  const pid_t child = ::fork();
  if (child == 0) {
    const std::int64_t now = monotonic_ns();
    ::_exit(::write(ends[1], &now, sizeof now) == sizeof now ? 0 : 1);
  }
  std::int64_t theirs = 0;
  ASSERT_EQ(::read(ends[0], &theirs, sizeof theirs), static_cast<ssize_t>(sizeof theirs));
  const std::int64_t after = monotonic_ns();
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_LE(before, theirs);
  EXPECT_LE(theirs, after);
}

TEST(Clock, SecondsSinceCountsWhatPassed) {
  const std::int64_t begin = monotonic_ns();
  const auto steady = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double least = std::chrono::duration<double>(std::chrono::steady_clock::now() - steady).count();
  const double seconds = seconds_since(begin);
  const double most = seconds_since(begin - 1'000'000'000), after = seconds_since(begin);
  EXPECT_GE(seconds, 0.02);
  EXPECT_GE(seconds, least);
  EXPECT_GE(most, seconds + 1);
  EXPECT_LE(most, after + 1 + 1e-6);
}
