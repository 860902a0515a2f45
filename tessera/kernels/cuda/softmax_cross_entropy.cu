#include <tessera/kernels/cuda/softmax_cross_entropy.h>

#include <tessera/kernels/cuda/device_code.h>

#include <cmath>

namespace tessera::kernels::cuda {
namespace {

constexpr int warp = 32, threads = 512, warps = threads / warp;
constexpr int at_once = 8;  // elements per thread that are loaded at the same time

/// Partial results for some of a row's elements.
struct Part {
  float largest = -HUGE_VALF;
  float total = 0;  // sum of exp(x - largest)
  double sum = 0;   // sum of all x; only with smoothing
};

/// The value to subtract before exp: -infinity minus itself would be NaN.
__device__ float shift_of(float largest) { return largest == -HUGE_VALF ? 0.0F : largest; }

__device__ Part merged(const Part& a, const Part& b) {
  Part both;
  both.largest = fmaxf(a.largest, b.largest);
  const float shift = shift_of(both.largest);
  both.total = __fadd_rn(__fmul_rn(a.total, expf(a.largest - shift)), __fmul_rn(b.total, expf(b.largest - shift)));
  both.sum = __dadd_rn(a.sum, b.sum);
  return both;
}

// The row is read once: a thread's sum is rescaled whenever its largest element grows (Milakov & Gimelshein 2018), once
// per eight elements.
template <class Element>
__device__ Part part_of_thread(const Element* x, std::int64_t columns, bool sums) {
  Part part;
  for (std::int64_t first = threadIdx.x; first < columns; first += threads * at_once) {
    float values[at_once];
    float largest = part.largest;
    for (int k = 0; k < at_once; ++k) {
      const std::int64_t j = first + k * threads;
      values[k] = j < columns ? element(x, j) : -HUGE_VALF;
      largest = fmaxf(largest, values[k]);
    }
    const float shift = shift_of(largest);
    float total = __fmul_rn(part.total, expf(part.largest - shift));
    for (int k = 0; k < at_once; ++k) total = __fadd_rn(total, expf(values[k] - shift));
    part.largest = largest;
    part.total = total;
    if (!sums) continue;
    for (int k = 0; k < at_once; ++k) {
      if (first + k * threads < columns) part.sum = __dadd_rn(part.sum, values[k]);
    }
  }
  return part;
}

/// The result for the whole row, on every thread.
template <class Element>
__device__ Part part_of_row(const Element* x, std::int64_t columns, bool sums) {
  __shared__ float largest[warps], total[warps];
  __shared__ double sum[warps];
  Part part = part_of_thread(x, columns, sums);
  for (unsigned half = warp / 2; half > 0; half /= 2) {
    Part other;
    other.largest = __shfl_xor_sync(0xffffffffU, part.largest, half);
    other.total = __shfl_xor_sync(0xffffffffU, part.total, half);
    if (sums) other.sum = __shfl_xor_sync(0xffffffffU, part.sum, half);  // uniform over the whole grid
    part = merged(part, other);
  }
  if (threadIdx.x % warp == 0) {
    largest[threadIdx.x / warp] = part.largest;
    total[threadIdx.x / warp] = part.total;
    sum[threadIdx.x / warp] = part.sum;
  }
  __syncthreads();
  Part row;
  for (int w = 0; w < warps; ++w) {
    Part other;
    other.largest = largest[w];
    other.total = total[w];
    other.sum = sum[w];
    row = merged(row, other);
  }
  return row;
}

template <class Element>
__device__ void fill(Element* x, std::int64_t columns, float value) {
  for (std::int64_t j = threadIdx.x; j < columns; j += threads) put(x, j, value);
}

// A block per row.
template <class Element>
__global__ void __launch_bounds__(threads)
    cross_entropy_rows(Element* logits, const std::int64_t* targets, double* losses, std::int64_t columns,
                       CrossEntropyArgs args) {
  Element* const x = logits + static_cast<std::int64_t>(blockIdx.x) * (columns + args.padding);
  if (args.gradient) fill(x + columns, args.padding, 0);
  const std::int64_t target = targets[blockIdx.x];
  if (target < 0 || target >= columns) {  // uniform over the whole block
    const float value = target == args.ignored ? 0.0F : NAN;
    if (threadIdx.x == 0) losses[blockIdx.x] = value;
    if (args.gradient) fill(x, columns, value);
    return;
  }
  const float at_target = element(x, target);  // read before the barrier in part_of_row(), after which it is
                                               // overwritten
  const Part row = part_of_row(x, columns, args.smoothing > 0);
  if (threadIdx.x == 0) {
    double loss = log(static_cast<double>(row.total)) + static_cast<double>(row.largest) - at_target;
    if (args.smoothing > 0)
      loss += static_cast<double>(args.smoothing) * (at_target - row.sum / static_cast<double>(columns));
    losses[blockIdx.x] = loss;
  }
  if (!args.gradient) return;
  const float shift = shift_of(row.largest), factor = __fdiv_rn(args.scale, row.total);
  const float each = __fdiv_rn(__fmul_rn(args.scale, args.smoothing), static_cast<float>(columns));
  const float more = __fmul_rn(args.scale, 1 - args.smoothing);
  for (std::int64_t first = threadIdx.x; first < columns; first += threads * at_once) {
    float values[at_once] = {};
    for (int k = 0; k < at_once; ++k) {
      const std::int64_t j = first + k * threads;
      if (j < columns) values[k] = element(x, j);
    }
    for (int k = 0; k < at_once; ++k) {
      const std::int64_t j = first + k * threads;
      if (j >= columns) break;
      const float gradient = __fsub_rn(__fmul_rn(expf(values[k] - shift), factor), each);
      put(x, j, j == target ? __fsub_rn(gradient, more) : gradient);
    }
  }
}

}  // namespace

void softmax_cross_entropy(Reals logits, const std::int64_t* targets, double* losses, std::int64_t rows,
                           std::int64_t columns, CrossEntropyArgs args, void* stream) {
  if (rows == 0) return;
  const dim3 grid(static_cast<unsigned>(rows)), block(threads);
  if (logits.type == Real::float32) {
    launch("softmax_cross_entropy", cross_entropy_rows<float>, grid, block, 0, stream, static_cast<float*>(logits.data),
           targets, losses, columns, args);
  } else {
    launch("softmax_cross_entropy", cross_entropy_rows<unsigned short>, grid, block, 0, stream,
           static_cast<unsigned short*>(logits.data), targets, losses, columns, args);
  }
}

}  // namespace tessera::kernels::cuda
