#pragma once
/// \file
/// CUDA kernels on the host: the threads of a block are fibers of one thread, which switch only at barriers and
/// shuffles. Blocks run one after another. Fibers run in forward, backward or shuffled order: a kernel whose result
/// depends on the order lacks a barrier.

#include <cstdint>
#include <functional>

namespace cuda_on_host {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

enum class Order { forward, backward, shuffled };

/// Sets the order for grids that this thread runs later; `seed`: for the shuffled order.
void set_order(Order order, std::uint64_t seed = 0);

/// Calls `thread` once for every thread of the grid. Throws std::logic_error if the threads of a block, or of a warp,
/// wait at different barriers or end while others wait. `shared_bytes`: dynamic shared memory of a block, filled with
/// 0xFF before each block.
void run_grid(Dim3 grid, Dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

/// Position of the calling fiber.
struct Place {
  Dim3 block_index, thread_index, grid, block;
};
const Place& place();
void* shared_memory();

/// Waits for all threads of the block; `site` identifies the barrier (its address or line).
void block_barrier(const void* site);
/// Waits for all threads of the warp.
void warp_barrier(const void* site);
/// Returns the value that lane `source` of the calling thread's warp contributes to the same exchange. Every lane of
/// the warp must take part. For a lane outside the warp it returns the caller's own value.
std::uint64_t exchange(std::uint64_t mine, unsigned source);
unsigned lane();

}  // namespace cuda_on_host
