#include <tests/cuda_on_host/grid.h>

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

// Weak: defined only in programs with AddressSanitizer, which must know the stack on which a program runs.
extern "C" __attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom,
                                                                     size_t size);
extern "C" __attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom,
                                                                      size_t* size);

namespace cuda_on_host {
namespace {

constexpr unsigned warp_size = 32;
constexpr std::size_t stack_bytes = 64 << 10;

/// A stack, created once, that runs one thread of a block after another. swapcontext() makes a system call for the
/// signal mask each time, so it only starts a fiber; afterwards fibers switch by longjmp().
struct Fiber {
  jmp_buf context;
  bool started = false;
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
  void* fake_stack = nullptr;
  Place place;
  unsigned number = 0;  // index in its block
  bool ended = false;
  const void* block_site = nullptr;  // barrier at which it waits
  const void* warp_site = nullptr;
  // Its values for the current exchange. Two, used alternately: a fiber that has passed a barrier may set the next
  // value while others still read the current one.
  std::uint64_t values[2] = {0, 0};
  unsigned exchanges = 0;
};

/// One block: its fibers, and which one is running.
struct Block {
  std::span<Fiber> fibers;
  Fiber* running = nullptr;
  jmp_buf scheduler;
  void* scheduler_fake_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  std::size_t scheduler_size = 0;
  const std::function<void()>* thread = nullptr;
  std::vector<unsigned char> shared;
  std::exception_ptr failure;
};

thread_local Block* block_now = nullptr;
thread_local std::vector<Fiber> idle;  // kept between grids, because their stacks are expensive
thread_local Order order_now = Order::forward;
thread_local std::mt19937_64 random_now;

Fiber& self() {
  if (block_now == nullptr || block_now->running == nullptr) throw std::logic_error("not inside of a kernel");
  return *block_now->running;
}

void leave() {
  Block& block = *block_now;
  Fiber& fiber = *block.running;
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(&fiber.fake_stack, block.scheduler_bottom, block.scheduler_size);
  if (_setjmp(fiber.context) == 0) _longjmp(block.scheduler, 1);
}

/// Called by a fiber on its own stack when it resumes.
void arrive() {
  if (__sanitizer_finish_switch_fiber == nullptr) return;
  Block& block = *block_now;
  __sanitizer_finish_switch_fiber(block.running->fake_stack, &block.scheduler_bottom, &block.scheduler_size);
}

void wait() {
  leave();
  arrive();
}

void run_threads() {
  for (;;) {
    arrive();
    Block& block = *block_now;
    try {
      (*block.thread)();
    } catch (...) {
      block.failure = std::current_exception();
    }
    block.running->ended = true;
    leave();
  }
}

/// Never returns: AddressSanitizer must not mark a frame that is left by a jump.
__attribute__((no_sanitize("address"))) void start(Fiber& fiber) {
  ucontext_t context, unused;
  getcontext(&context);
  context.uc_stack = {.ss_sp = fiber.stack.get(), .ss_flags = 0, .ss_size = stack_bytes};
  context.uc_link = nullptr;
  makecontext(&context, &run_threads, 0);
  fiber.started = true;
  swapcontext(&unused, &context);
}

void resume(Block& block, Fiber& fiber) {
  block.running = &fiber;
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(&block.scheduler_fake_stack, fiber.stack.get(), stack_bytes);
  if (_setjmp(block.scheduler) == 0) {
    if (!fiber.started) start(fiber);
    _longjmp(fiber.context, 1);
  }
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(block.scheduler_fake_stack, nullptr, nullptr);
  block.running = nullptr;
  if (block.failure) std::rethrow_exception(block.failure);
}

/// Releases the fibers [begin, end) if all of them wait at one barrier. Returns whether it did.
bool release(Block& block, unsigned begin, unsigned end, const void* Fiber::* site) {
  const void* first = block.fibers[begin].*site;
  if (first == nullptr) return false;
  for (unsigned i = begin; i < end; ++i) {
    const Fiber& fiber = block.fibers[i];
    if (fiber.ended) throw std::logic_error("a thread has ended while others wait for it at a barrier");
    if (fiber.*site == nullptr) return false;
    if (fiber.*site != first) throw std::logic_error("threads wait at different barriers");
  }
  for (unsigned i = begin; i < end; ++i) block.fibers[i].*site = nullptr;
  return true;
}

std::vector<unsigned> ordered(unsigned count) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0U);
  if (order_now == Order::backward) std::reverse(order.begin(), order.end());
  return order;
}
void reorder(std::vector<unsigned>& order) {
  if (order_now == Order::shuffled) std::shuffle(order.begin(), order.end(), random_now);
}

/// Runs a warp until all of it waits for the block or has ended. No other warp starts before that, because this order
/// exposes missing barriers best.
void run_warp(Block& block, unsigned begin, unsigned end, std::vector<unsigned>& lanes) {
  do {
    reorder(lanes);
    for (const unsigned lane : lanes) {
      if (begin + lane >= end) continue;
      Fiber& fiber = block.fibers[begin + lane];
      if (!fiber.ended && fiber.block_site == nullptr && fiber.warp_site == nullptr) resume(block, fiber);
    }
  } while (release(block, begin, end, &Fiber::warp_site));
}

void run_block(Block& block) {
  const auto count = static_cast<unsigned>(block.fibers.size());
  std::vector<unsigned> warps = ordered((count + warp_size - 1) / warp_size), lanes = ordered(warp_size);
  do {
    reorder(warps);
    for (const unsigned warp : warps)
      run_warp(block, warp * warp_size, std::min(warp * warp_size + warp_size, count), lanes);
  } while (release(block, 0, count, &Fiber::block_site));
  if (!std::all_of(block.fibers.begin(), block.fibers.end(), [](const Fiber& f) { return f.ended; }))
    throw std::logic_error("the threads of a block wait at different barriers, or some have ended");
}

}  // namespace

void set_order(Order order, std::uint64_t seed) {
  order_now = order;
  random_now.seed(seed);
}

void run_grid(Dim3 grid, Dim3 size, std::size_t shared_bytes, const std::function<void()>& thread) {
  const unsigned count = size.x * size.y * size.z;
  std::vector<Fiber> fibers = std::move(idle);  // after a failure they are suspended mid-kernel, so they are not reused
  while (fibers.size() < count) fibers.emplace_back();
  Block block;
  block.fibers = {fibers.data(), count};
  block.thread = &thread;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  for (std::uint64_t index = 0; index < blocks; ++index) {
    block.shared.assign(shared_bytes, 0xFF);
    const Dim3 block_index{static_cast<unsigned>(index % grid.x), static_cast<unsigned>(index / grid.x % grid.y),
                           static_cast<unsigned>(index / grid.x / grid.y)};
    for (unsigned i = 0; i < count; ++i) {
      Fiber& fiber = fibers[i];
      fiber.number = i;
      fiber.ended = false;
      fiber.exchanges = 0;
      fiber.place = {block_index, {i % size.x, i / size.x % size.y, i / size.x / size.y}, grid, size};
    }
    block_now = &block;
    try {
      run_block(block);
    } catch (...) {
      block_now = nullptr;
      throw;
    }
    block_now = nullptr;
  }
  idle = std::move(fibers);
}

const Place& place() { return self().place; }
void* shared_memory() {
  self();
  return block_now->shared.data();
}
unsigned lane() { return self().number % warp_size; }

void block_barrier(const void* site) {
  self().block_site = site;
  wait();
}

void warp_barrier(const void* site) {
  self().warp_site = site;
  wait();
}

std::uint64_t exchange(std::uint64_t mine, unsigned source) {
  static const char given = 0;
  Fiber& fiber = self();
  const unsigned which = fiber.exchanges++ % 2;
  fiber.values[which] = mine;
  warp_barrier(&given);
  const unsigned from = fiber.number / warp_size * warp_size + source;
  return source < warp_size && from < block_now->fibers.size() ? block_now->fibers[from].values[which] : mine;
}

}  // namespace cuda_on_host
