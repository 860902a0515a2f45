// kill -9 at a random moment of a save: the newest checkpoint is complete and contains exactly its step's data, and the
// next job continues in the same folder without manual repair. 50 times; 1,000 with TESSERA_FULL=1.
#include <tests/sharding/job.h>
#include <tests/sharding/saved_state.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/format/manifest/verify.h>

namespace tessera::testing {
namespace {

constexpr int ranks = 2;
const Widths widths{64, 300, 200, 64};

/// Shared by the test and the ranks.
struct Shared {
  std::atomic<pid_t> pids[ranks];
  std::atomic<std::int64_t> begun, announced;  // steps; announced: last step whose save succeeded
};

/// Saves one step after another, as a training run does, until it is killed.
[[noreturn]] void run_job(const std::string& output_dir, Shared& shared) {
  log::set_level(log::Level::warning);
  RankOptions options;
  options.timeout_s = 120;
  run_ranks_outcomes(
      ranks,
      [&](comm::World& world) {
        shared.pids[world.rank()] = ::getpid();
        const auto newest = newest_checkpoint(output_dir);
        std::int64_t step = newest ? checkpoint::read_run_state(*newest).step : 0;
        world.group().barrier().wait();
        SavingRank rank(world, widths, output_dir);
        while (true) {
          ++step;
          if (world.rank() == 0) shared.begun = step;
          rank.begin(step, /*keep=*/2);
          while (rank.busy())
            if (const auto outcome = rank.advance(world)) {
              if (!outcome->error.empty()) ::_exit(3);
              if (world.rank() == 0) shared.announced = step;
            }
        }
      },
      options);
  ::_exit(4);  // only a kill ends it
}

bool wait_until(double seconds, const std::function<bool()>& condition) {
  const Stopwatch watch;
  while (!condition()) {
    if (watch.seconds() > watch.limit(seconds)) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

/// Reaps all processes of a job; they become this process's children once their parent is dead.
void reap(pid_t job, const Shared& shared) {
  ::waitpid(job, nullptr, 0);
  for (const auto& pid : shared.pids)
    if (pid > 0) ::waitpid(pid, nullptr, 0);
}

std::vector<std::string> half_written(const std::string& output_dir) {
  std::vector<std::string> found;
  for (const std::string& name : list_folder(output_dir))
    if (name.find(".tmp.") != std::string::npos || name.find(".old.") != std::string::npos) found.push_back(name);
  return found;
}

TEST(CheckpointKill, TheNewestCheckpointIsWholeAfterEveryKill) {
  const int trials = full_product() ? 1000 : 50;
  const unsigned seed = test_seed();
  std::printf("TESSERA_SEED=%u\n", seed);
  std::mt19937 chance(seed);
  const auto below = [&](int n) { return std::uniform_int_distribution<>(0, n - 1)(chance); };
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // ranks briefly outlive the process that started them
  auto* shared =
      static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  const TemporaryFolder folder;
  const std::string& out = folder.path();
  int unfinished = 0, one_rank = 0;
  std::int64_t lost = 0, before = 0;  // before: newest checkpoint when the job started
  std::vector<std::string> left;      // by the previous job
  for (int trial = 0; trial < trials && !::testing::Test::HasFailure(); ++trial) {
    new (shared) Shared{};
    std::fflush(nullptr);
    const pid_t job = ::fork();
    ASSERT_GE(job, 0);
    if (job == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run_job(out, *shared);
    }
    // Kills at a random moment after a save has begun; a save takes some tens of milliseconds. In every other trial one
    // save has completed first.
    const bool started =
        wait_until(60, [&] { return trial % 2 == 0 ? shared->announced > before : shared->begun > before; });
    EXPECT_TRUE(started) << "trial " << trial << ": the job did not save";
    if (started && shared->announced > before) {
      for (const std::string& name : left)
        EXPECT_FALSE(path_exists(path_join(out, name))) << "trial " << trial << ": left by a dead job";
    }
    std::this_thread::sleep_for(std::chrono::microseconds(below(80'000)));
    if (started && below(2) == 0) {  // one rank first; a run's agent ends the others a moment later
      ++one_rank;
      ::kill(shared->pids[below(ranks)], SIGKILL);
      std::this_thread::sleep_for(std::chrono::microseconds(below(30'000)));
    }
    ::kill(job, SIGKILL);  // its ranks die with it
    reap(job, *shared);

    const auto newest = newest_checkpoint(out);
    const std::int64_t announced = shared->announced, begun = shared->begun;
    before = newest ? checkpoint::read_run_state(*newest).step : 0;
    EXPECT_GE(before, announced) << "trial " << trial;
    EXPECT_LE(before, begun) << "trial " << trial;
    EXPECT_TRUE(newest || trial == 0) << "trial " << trial;
    lost += std::max<std::int64_t>(0, begun - before);
    for (const auto& one : checkpoint::step_folders(out)) {
      EXPECT_EQ(format::verify_folder(one.path).text(), "") << "trial " << trial;
      EXPECT_EQ(difference_from(one.path, one.step, widths), "") << "trial " << trial << ": " << one.path;
    }
    left = half_written(out);
    unfinished += !left.empty();
  }
  std::printf("%d kills (%d of one rank first): %d left a half-written folder; %lld saves under way were lost\n",
              trials, one_rank, unfinished, static_cast<long long>(lost));
  EXPECT_GT(unfinished, 0) << "no kill interrupted a save: the test proves nothing";
  ::munmap(shared, sizeof(Shared));
}

}  // namespace
}  // namespace tessera::testing
