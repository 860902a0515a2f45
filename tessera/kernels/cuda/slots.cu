#include <tessera/kernels/cuda/device_code.h>
#include <tessera/kernels/cuda/slots.h>

namespace tessera::kernels::cuda {
namespace {

constexpr std::int64_t part = slots_of_part;
constexpr int threads = static_cast<int>(part), warps = threads / static_cast<int>(warp_size);

/// Counts, for each slot, the earlier slots in its part with the same expert and, for each expert, its slots per part:
/// sizes [experts, parts], initially zero, because most experts do not have slots in most parts.
__global__ void rank_in_part(const std::int64_t* ids, std::int64_t* before, std::int32_t* sizes, std::int64_t slots,
                             std::int64_t experts) {
  __shared__ std::int32_t chosen[threads];
  const std::int64_t slot = blockIdx.x * part + threadIdx.x;
  const std::int64_t id = slot < slots ? ids[slot] : -1;
  if (id < -1 || id >= experts) __trap();
  chosen[threadIdx.x] = static_cast<std::int32_t>(id);
  __syncthreads();
  if (id < 0) return;
  std::int32_t lower = 0, all = 0;
  for (int other = 0; other < threads; ++other) {
    const bool same = chosen[other] == static_cast<std::int32_t>(id);
    all += same;
    lower += same && other < static_cast<int>(threadIdx.x);
  }
  before[slot] = lower;
  if (lower == 0) sizes[id * gridDim.x + blockIdx.x] = all;
}

/// One block per line of numbers: replaces each number by the sum of the preceding numbers in its line. `totals`: the
/// sums of whole lines.
__global__ void add_up(const std::int32_t* from, std::int32_t* to, std::int32_t* totals, std::int64_t columns) {
  __shared__ std::int32_t sums[warps];
  const int lane = static_cast<int>(threadIdx.x % warp_size), warp = static_cast<int>(threadIdx.x / warp_size);
  std::int32_t carried = 0;
  for (std::int64_t begin = 0; begin < columns; begin += threads) {
    const std::int64_t column = begin + threadIdx.x, i = blockIdx.x * columns + column;
    const std::int32_t value = column < columns ? from[i] : 0;
    std::int32_t sum = value;
    for (int delta = 1; delta < static_cast<int>(warp_size); delta *= 2) {
      const std::int32_t lower = __shfl_up_sync(0xffffffffU, sum, static_cast<unsigned>(delta));
      if (lane >= delta) sum += lower;
    }
    __syncthreads();  // the previous iteration's sums have been read
    if (lane == static_cast<int>(warp_size) - 1) sums[warp] = sum;
    __syncthreads();
    std::int32_t lower = carried;
    for (int other = 0; other < warps; ++other) {
      if (other < warp) lower += sums[other];
      carried += sums[other];
    }
    if (column < columns) to[i] = lower + sum - value;
  }
  if (threadIdx.x == 0 && totals != nullptr) totals[blockIdx.x] = carried;
}

/// sizes [experts, parts], summed over the preceding parts; starts [experts]: first row of each expert if there is one
/// row per slot.
__global__ void place(SlotOrder a, const std::int32_t* sizes, const std::int32_t* totals, const std::int32_t* starts,
                      std::int64_t slots, std::int64_t experts, std::int64_t parts) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < experts) {
    if (a.rows_each > 0 && totals[i] > a.rows_each) __trap();
    a.counts[i] = a.rows_each > 0 ? a.rows_each : totals[i];
    a.ends[i] = static_cast<std::int32_t>(a.rows_each > 0 ? (i + 1) * a.rows_each : starts[i] + totals[i]);
  }
  if (i >= slots) return;
  const std::int64_t id = a.ids[i];
  if (id < 0) {
    a.inverse[i] = -1;
    return;
  }
  const std::int64_t within = sizes[id * parts + i / part] + a.inverse[i];
  if (a.rows_each > 0 && within >= a.rows_each) __trap();  // avoids writes outside of `order`
  const std::int64_t row = (a.rows_each > 0 ? id * a.rows_each : starts[id]) + within;
  a.order[row] = i;
  a.inverse[i] = row;
}

}  // namespace

void sort_slots(const SlotOrder& a, std::int64_t slots, std::int64_t experts, void* stream) {
  if (experts == 0) return;
  const std::int64_t parts = slot_parts(slots);
  std::int32_t *const sizes = a.scratch, *const totals = sizes + experts * parts, *const starts = totals + experts;
  const auto blocks = [](std::int64_t count) { return dim3(static_cast<unsigned>(count)); };
  if (slots > 0) {
    launch("rank_in_part", rank_in_part, blocks(parts), dim3(threads), 0, stream, a.ids, a.inverse, sizes, slots,
           experts);
    launch("add_up", add_up, blocks(experts), dim3(threads), 0, stream, static_cast<const std::int32_t*>(sizes), sizes,
           totals, parts);
  }
  launch("add_up", add_up, blocks(1), dim3(threads), 0, stream, static_cast<const std::int32_t*>(totals), starts,
         static_cast<std::int32_t*>(nullptr), experts);
  launch("place", place, blocks(slot_parts(slots < experts ? experts : slots)), dim3(threads), 0, stream, a,
         static_cast<const std::int32_t*>(sizes), static_cast<const std::int32_t*>(totals),
         static_cast<const std::int32_t*>(starts), slots, experts, parts);
}

}  // namespace tessera::kernels::cuda
