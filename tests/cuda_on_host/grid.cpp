#include <tests/cuda_on_host/grid.h>

#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

// Weak: there in programs with AddressSanitizer, which must know on which stack a program runs.
extern "C" __attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom,
                                                                     size_t size);
extern "C" __attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom,
                                                                      size_t* size);

namespace cuda_on_host {
namespace {

constexpr unsigned warp_size = 32;
constexpr std::size_t stack_bytes = 64 << 10;

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
  void* fake_stack = nullptr;
  Place place;
  unsigned number = 0;  // in its block
  bool ended = false;
  const void* block_site = nullptr;  // the barrier that it waits at
  const void* warp_site = nullptr;
  std::uint64_t value = 0;  // what it gives to the exchange under way
};

/// One block: its fibers, and who runs.
struct Block {
  std::vector<Fiber> fibers;
  Fiber* running = nullptr;
  ucontext_t scheduler{};
  void* scheduler_fake_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  std::size_t scheduler_size = 0;
  const std::function<void()>* thread = nullptr;
  std::vector<unsigned char> shared;
  std::exception_ptr failure;
};

thread_local Block* block_now = nullptr;
thread_local Order order_now = Order::forward;
thread_local std::mt19937_64 random_now;

Fiber& self() {
  if (block_now == nullptr || block_now->running == nullptr) throw std::logic_error("not inside of a kernel");
  return *block_now->running;
}

void leave(bool for_good) {
  Block& block = *block_now;
  Fiber& fiber = *block.running;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber.fake_stack, block.scheduler_bottom,
                                   block.scheduler_size);
  }
  swapcontext(&fiber.context, &block.scheduler);
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(fiber.fake_stack, nullptr, nullptr);
}

void begin_fiber() {
  Block& block = *block_now;
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_bottom, &block.scheduler_size);
  }
  try {
    (*block.thread)();
  } catch (...) {
    block.failure = std::current_exception();
  }
  block.running->ended = true;
  leave(/*for_good=*/true);
}

void resume(Block& block, Fiber& fiber) {
  block.running = &fiber;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&block.scheduler_fake_stack, fiber.stack.get(), stack_bytes);
  }
  swapcontext(&block.scheduler, &fiber.context);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(block.scheduler_fake_stack, nullptr, nullptr);
  }
  block.running = nullptr;
  if (block.failure) std::rethrow_exception(block.failure);
}

/// Lets the fibers [begin, end) go on if all of them wait at one barrier. True when it was so.
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

void run_block(Block& block) {
  const auto count = static_cast<unsigned>(block.fibers.size());
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0U);
  if (order_now == Order::backward) std::reverse(order.begin(), order.end());
  for (;;) {
    if (order_now == Order::shuffled) std::shuffle(order.begin(), order.end(), random_now);
    bool any = false;
    for (const unsigned i : order) {
      Fiber& fiber = block.fibers[i];
      if (fiber.ended || fiber.block_site != nullptr || fiber.warp_site != nullptr) continue;
      resume(block, fiber);
      any = true;
    }
    for (unsigned begin = 0; begin < count; begin += warp_size) {
      any |= release(block, begin, std::min(begin + warp_size, count), &Fiber::warp_site);
    }
    any |= release(block, 0, count, &Fiber::block_site);
    if (any) continue;
    if (std::all_of(block.fibers.begin(), block.fibers.end(), [](const Fiber& f) { return f.ended; })) return;
    throw std::logic_error("the threads of a block wait at different barriers, or some have ended");
  }
}

}  // namespace

void set_order(Order order, std::uint64_t seed) {
  order_now = order;
  random_now.seed(seed);
}

void run_grid(Dim3 grid, Dim3 size, std::size_t shared_bytes, const std::function<void()>& thread) {
  const unsigned count = size.x * size.y * size.z;
  std::vector<Fiber> fibers(count);  // one block's after the other's: their stacks are the dear part
  for (unsigned index = 0; index < grid.x * grid.y * grid.z; ++index) {
    Block block;
    block.thread = &thread;
    block.shared.assign(shared_bytes, 0xFF);
    block.fibers = std::move(fibers);
    const Dim3 block_index{index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y};
    for (unsigned i = 0; i < count; ++i) {
      Fiber& fiber = block.fibers[i];
      fiber.number = i;
      fiber.ended = false;
      fiber.place = {block_index, {i % size.x, i / size.x % size.y, i / size.x / size.y}, grid, size};
      getcontext(&fiber.context);
      fiber.context.uc_stack = {.ss_sp = fiber.stack.get(), .ss_flags = 0, .ss_size = stack_bytes};
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, &begin_fiber, 0);
    }
    block_now = &block;
    try {
      run_block(block);
    } catch (...) {
      block_now = nullptr;
      throw;
    }
    block_now = nullptr;
    fibers = std::move(block.fibers);
  }
}

const Place& place() { return self().place; }
void* shared_memory() {
  self();
  return block_now->shared.data();
}
unsigned lane() { return self().number % warp_size; }

void block_barrier(const void* site) {
  self().block_site = site;
  leave(/*for_good=*/false);
}

void warp_barrier(const void* site) {
  self().warp_site = site;
  leave(/*for_good=*/false);
}

std::uint64_t exchange(std::uint64_t mine, unsigned source) {
  static const char given = 0, taken = 0;
  Fiber& fiber = self();
  fiber.value = mine;
  warp_barrier(&given);
  const unsigned from = fiber.number / warp_size * warp_size + source;
  const std::uint64_t value =
      source < warp_size && from < block_now->fibers.size() ? block_now->fibers[from].value : mine;
  warp_barrier(&taken);
  return value;
}

}  // namespace cuda_on_host
