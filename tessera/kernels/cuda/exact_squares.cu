#include <tessera/kernels/cuda/exact_squares.h>

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

constexpr unsigned warp = 32, threads = 256, warps = threads / warp;
constexpr int square_block = 64;                      // elements; kernels::square_block
constexpr int most_ranges = 128;                      // ranges per launch; they are passed as its argument (4 KB at
                                                      // most)
constexpr std::int64_t blocks_at_once = 256;          // blocks of 64 elements per thread block and iteration
constexpr std::int64_t most_thread_blocks = 132 * 8;  // enough to fill an H100/H200; the loop covers the rest

struct Ranges {
  SquareRange range[most_ranges];
  std::int64_t first[most_ranges + 1];  // number of portions of `blocks_at_once` blocks before each range
  int count;
};

// Like ExactSum::add, for one non-negative number.
__device__ void add_exactly(unsigned long long* words, double x) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(x));
  const auto exponent = static_cast<unsigned>(bits >> 52 & 0x7ff);
  unsigned long long mantissa = bits & 0xfffffffffffffULL;
  if (exponent == 0x7ff) {  // NaN, +infinity: a sum of squares is never -infinity
    atomicAdd(words + (mantissa != 0 ? exact_words - 3 : exact_words - 2), 1ULL);
    return;
  }
  if (bits == 0) return;
  if (exponent != 0) mantissa |= 1ULL << 52;
  const unsigned position = exponent == 0 ? 0 : exponent - 1;  // position of the mantissa's lowest bit above 2^-1074
  const unsigned shift = position % 32;
  const unsigned long long low = mantissa << shift;
  const unsigned long long high = shift == 0 ? 0 : mantissa >> (64 - shift);
  unsigned long long* word = words + position / 32;
  atomicAdd(word, low & 0xffffffffULL);
  atomicAdd(word + 1, low >> 32);
  if (high != 0) atomicAdd(word + 2, high);
}

// One warp per block of 64 elements: lane j adds the squares of elements j and j + 32, then halves are added.
template <class Element>
__device__ double block_sum(const Element* x, std::int64_t begin, std::int64_t numel) {
  const std::int64_t i = begin + threadIdx.x % warp;
  double sum = 0;
  if (i < numel) {
    const double value = element(x, i);
    sum = __dmul_rn(value, value);
  }
  if (i + warp < numel) {
    const double value = element(x, i + warp);
    sum = __dadd_rn(sum, __dmul_rn(value, value));
  }
  for (unsigned half = warp / 2; half > 0; half /= 2) {
    sum = __dadd_rn(sum, __shfl_down_sync(0xffffffffU, sum, half));
  }
  return sum;  // lane 0 has the block's sum
}

template <class Element>
__global__ void exact_squares(Ranges ranges, unsigned long long* words) {
  __shared__ unsigned long long own[exact_words];
  for (unsigned i = threadIdx.x; i < exact_words; i += threads) own[i] = 0;
  __syncthreads();
  int r = 0;
  for (std::int64_t portion = blockIdx.x; portion < ranges.first[ranges.count]; portion += gridDim.x) {
    while (portion >= ranges.first[r + 1]) ++r;
    const SquareRange range = ranges.range[r];
    const std::int64_t begin = (portion - ranges.first[r]) * blocks_at_once;
    for (std::int64_t b = begin + threadIdx.x / warp; b < begin + blocks_at_once; b += warps) {
      if (b * square_block >= range.numel) break;  // uniform over a whole warp
      const double sum = block_sum(static_cast<const Element*>(range.data), b * square_block, range.numel);
      if (threadIdx.x % warp == 0) add_exactly(own, sum);
    }
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < exact_words; i += threads) {
    if (own[i] != 0) atomicAdd(words + i, own[i]);
  }
}

template <class Element>
void add_some(const Ranges& ranges, std::int64_t* words, void* stream) {
  const std::int64_t portions = ranges.first[ranges.count];
  if (portions == 0) return;
  launch("exact_squares", exact_squares<Element>,
         dim3(static_cast<unsigned>(portions < most_thread_blocks ? portions : most_thread_blocks)), dim3(threads), 0,
         stream, ranges, reinterpret_cast<unsigned long long*>(words));
}

}  // namespace

void add_exact_squares(std::span<const SquareRange> ranges, Real type, std::int64_t* words, void* stream) {
  for (std::size_t begin = 0; begin < ranges.size(); begin += most_ranges) {
    Ranges some = {};
    for (std::size_t i = begin; i < ranges.size() && i < begin + most_ranges; ++i) {
      const std::int64_t blocks = (ranges[i].numel + square_block - 1) / square_block;
      some.range[some.count] = ranges[i];
      some.first[some.count + 1] = some.first[some.count] + (blocks + blocks_at_once - 1) / blocks_at_once;
      ++some.count;
    }
    if (type == Real::float32) {
      add_some<float>(some, words, stream);
    } else {
      add_some<unsigned short>(some, words, stream);
    }
  }
}

}  // namespace tessera::kernels::cuda
