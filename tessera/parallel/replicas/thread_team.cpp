#include <tessera/parallel/replicas/thread_team.h>

#include <tessera/base/error.h>
#include <tessera/comm/thread.h>
#include <tessera/nn/autocast.h>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <cfenv>
#include <utility>

namespace tessera::parallel {

ThreadTeam::ThreadTeam(const std::string& name, int intra_op_threads) : intra_op_threads_(intra_op_threads) {
  TESSERA_CHECK(intra_op_threads > 0, "a team needs at least one thread");
  // set_num_threads() applies to the calling thread for OpenMP and MKL, but also becomes the default of threads that
  // have not queried it yet; restored below.
  const int here = at::get_num_threads();
  thread_ = comm::quiet_thread(name.c_str(), [this] { loop(); });
  start([this] {
    at::get_num_threads();  // a thread adopts the process's number on its first query, so query before setting its own
    at::set_num_threads(intra_op_threads_);
  }).get();
  at::set_num_threads(here);
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::future<void> ThreadTeam::start(std::function<void()> work) {
  std::fenv_t floating_point;
  std::fegetenv(&floating_point);
  std::packaged_task<void()> task(
      [work = std::move(work), state = at::ThreadLocalState(), floating_point, rounding = nn::rounding()] {
        std::fesetenv(&floating_point);
        const at::ThreadLocalStateGuard guard(state);
        nn::set_rounding(rounding);  // the thread belongs to the team, so nothing is restored
        work();
      });
  std::future<void> done = task.get_future();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !next_.valid(); });
    next_ = std::move(task);
  }
  changed_.notify_all();
  return done;
}

void ThreadTeam::loop() {
  for (;;) {
    std::packaged_task<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return end_ || next_.valid(); });
      if (!next_.valid()) return;
      task = std::exchange(next_, {});
    }
    changed_.notify_all();
    task();
  }
}

}  // namespace tessera::parallel
