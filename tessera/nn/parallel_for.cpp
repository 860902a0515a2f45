#include <tessera/nn/parallel_for.h>

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <atomic>
#include <exception>

// The entry of libgomp that every `#pragma omp parallel` of g++ calls; callers get the number of threads from omp_*.
// https://gcc.gnu.org/onlinedocs/libgomp/Implementing-PARALLEL-construct.html
extern "C" {
void GOMP_parallel(void (*run)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_num_threads();
int omp_get_thread_num();
}

namespace tessera::nn::detail {

namespace {

struct Loop {
  std::int64_t begin, end, grain;
  const void* body;
  Range call;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error = nullptr;  // written by the thread that set `failed`, read after all threads have finished
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// One thread's range; the formula is that of ATen/ParallelOpenMP.h (invoke_parallel), so that sums are in the same
/// order.
void run_range(void* data) {
  Loop& loop = *static_cast<Loop*>(data);
  const std::int64_t count = loop.end - loop.begin;
  std::int64_t threads = omp_get_num_threads();
  if (loop.grain > 0) threads = std::min(threads, ceil_div(count, loop.grain));
  const std::int64_t thread = omp_get_thread_num(), each = ceil_div(count, threads);
  const std::int64_t first = loop.begin + thread * each;
  if (first >= loop.end) return;
  try {
    const at::internal::ThreadIdGuard number(static_cast<int>(thread));
    const c10::ParallelGuard inside(true);
    loop.call(loop.body, first, std::min(loop.end, first + each));
  } catch (...) {
    if (!loop.failed.test_and_set()) loop.error = std::current_exception();
  }
}

}  // namespace

void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, const void* body, Range call) {
  if (begin >= end) return;
  at::internal::lazy_init_num_threads();
  const std::int64_t count = end - begin;
  if (count <= grain || count == 1 || at::in_parallel_region() || at::get_num_threads() == 1) {
    const at::internal::ThreadIdGuard number(0);
    const c10::ParallelGuard inside(true);
    call(body, begin, end);
    return;
  }
  Loop loop{begin, end, grain, body, call};
  GOMP_parallel(run_range, &loop, 0, 0);  // 0: the number of threads set by omp_set_num_threads
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace tessera::nn::detail
