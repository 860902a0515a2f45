#pragma once
/// \file
/// CUDA kernels on the host: the threads of a block are fibers of one thread, which switch at barriers and shuffles
/// only. Blocks run one after another. The order in which fibers run is forward, backward or shuffled: a kernel whose
/// result depends on it lacks a barrier.

#include <cstdint>
#include <functional>

namespace cuda_on_host {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

enum class Order { forward, backward, shuffled };

/// The order of the grids that this thread runs from now on; `seed`: of the shuffled one.
void set_order(Order order, std::uint64_t seed = 0);

/// Calls `thread` once for every thread of the grid. Throws std::logic_error when the threads of a block, or of a warp,
/// wait at different barriers or end while others wait. `shared_bytes`: dynamic shared memory of a block, filled with
/// 0xFF before each block.
void run_grid(Dim3 grid, Dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

/// Where the calling fiber is.
struct Place {
  Dim3 block_index, thread_index, grid, block;
};
const Place& place();
void* shared_memory();

/// Waits for all threads of the block; `site` tells barriers apart (its address or line).
void block_barrier(const void* site);
/// Waits for the threads of the warp.
void warp_barrier(const void* site);
/// The value that lane `source` of the calling thread's warp gives to the same exchange. Every lane of the warp takes
/// part. A lane outside of the warp: one's own value.
std::uint64_t exchange(std::uint64_t mine, unsigned source);
unsigned lane();

}  // namespace cuda_on_host
