#include <tessera/kernels/cuda/device_code.h>
#include <tessera/kernels/cuda/fp8.h>

namespace tessera::kernels::cuda {
namespace {

constexpr unsigned threads = 256, warps = threads / warp_size;
constexpr unsigned side = 128;  // rows and columns of a tile; a warp reads a row and writes 128 bytes of either result

// The bits of non-negative numbers have the same order as the numbers, with NaN above all others.
__device__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffU; }
__device__ unsigned larger(unsigned a, unsigned b) { return a > b ? a : b; }

/// Returns the largest x of a block; every thread of the block must call it.
__device__ unsigned block_largest(unsigned x, unsigned* of_warp) {
  for (unsigned half = warp_size / 2; half > 0; half /= 2) x = larger(x, __shfl_xor_sync(0xffffffffU, x, half));
  __syncthreads();  // all threads have finished reading an earlier call's values
  if (threadIdx.x % warp_size == 0) of_warp[threadIdx.x / warp_size] = x;
  __syncthreads();
  for (unsigned w = 0; w < warps; ++w) x = larger(x, of_warp[w]);
  return x;
}

template <int width>
__global__ void largest_of_parts(ConstReals x, const float* chosen, float* parts, std::int64_t n) {
  __shared__ unsigned of_warp[warps];
  if (chosen != nullptr && *chosen > 0) return;  // uniform over the whole grid
  constexpr int at_once = 4;                     // loads in flight
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads * width;
  unsigned largest = 0;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * width; i < n;
       i += at_once * step) {
    float v[at_once][width] = {};
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (i + j * step < n) load(x, i + j * step, v[j]);
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      for (int k = 0; k < width; ++k) largest = larger(largest, magnitude(v[j][k]));
    }
  }
  largest = block_largest(largest, of_warp);
  if (threadIdx.x == 0) parts[blockIdx.x] = __uint_as_float(largest);
}

/// Returns the factor of all elements. Every thread of the block must call it.
__device__ float factor_of(const Fp8Cast& a, std::int64_t parts, unsigned* of_warp) {
  float largest = a.chosen != nullptr ? *a.chosen : 0;
  if (!(largest > 0)) {  // uniform over the whole grid
    unsigned own = 0;
    for (std::int64_t i = threadIdx.x; i < parts; i += threads) own = larger(own, __float_as_uint(a.parts[i]));
    largest = __uint_as_float(block_largest(own, of_warp));
    if (!(largest > 0)) return 1;
  }
  const float factor = __fdiv_rn(a.most, largest);
  return magnitude(factor) < 0x7f800000U ? factor : 1;
}

/// x in eight bits, as converted by c10: below the smallest normal number, adding a power of two whose last place is
/// the type's smallest number rounds; above it, half of the truncated part is added.
template <Fp8 type>
__device__ unsigned eight_bits(float x) {
  constexpr bool e4m3 = type == Fp8::e4m3;
  constexpr unsigned cut = e4m3 ? 20 : 21, bias = e4m3 ? 7 : 15, least_normal = (127 - bias + 1) << 23,
                     rounds = (127 - bias + cut + 1) << 23, most = e4m3 ? 0x43e00000U : 0x47600000U;
  const unsigned bits = __float_as_uint(x), sign = bits >> 24 & 0x80U;
  unsigned size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return 0x7f;
  if (size > most) size = most;
  if (size < least_normal)
    return sign | (__float_as_uint(__fadd_rn(__uint_as_float(size), __uint_as_float(rounds))) - rounds);
  return sign | (size - ((127 - bias) << 23) + (1U << (cut - 1)) - 1 + (size >> cut & 1)) >> cut;
}

/// Two numbers of eight bits each, the first one in the lower half.
template <Fp8 type>
__device__ unsigned two_in_eight_bits(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  unsigned short two;
  if constexpr (type == Fp8::e4m3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(two) : "f"(low), "f"(high));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(two) : "f"(low), "f"(high));
  }
  return two;
#else
  return eight_bits<type>(low) | eight_bits<type>(high) << 8;
#endif
}

/// Writes the first `count` bytes of a word to y; with `fours`, all four in one access.
template <bool fours>
__device__ void put_bytes(std::uint8_t* y, unsigned word, std::int64_t count) {
  if constexpr (fours) {
    if (count > 0) *reinterpret_cast<unsigned*>(y) = word;
  } else {
    for (int k = 0; k < 4; ++k) {
      if (k < count) y[k] = static_cast<std::uint8_t>(word >> 8 * k);
    }
  }
}

/// Loads four adjacent elements of a row, with zeros beyond its end.
template <bool fours>
__device__ void load_some(ConstReals x, std::int64_t i, std::int64_t count, float (&to)[4]) {
  if constexpr (fours) {
    if (count > 0) load(x, i, to);
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k < count) to[k] = load(x, i + k);
    }
  }
}

/// One block per tile of side x side. A thread rounds squares of 4 x 4; their transposes pass through shared memory,
/// where words are shifted by one place per four columns, so that neither writes nor reads have bank conflicts.
template <Fp8 type, bool fours>
__global__ void cast_tiles(Fp8Cast a, std::int64_t rows, std::int64_t columns, std::int64_t parts,
                           std::int64_t tiles_of_row) {
  __shared__ unsigned words[side * side / 4];  // rows 4 g, ..., 4 g + 3 of column c
  __shared__ unsigned of_warp[warps];
  const auto place = [](unsigned c, unsigned g) { return c * (side / 4) + (g + c / 4) % (side / 4); };
  const float factor = factor_of(a, parts, of_warp);
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.scale = __fdiv_rn(1, factor);
  const std::int64_t top = blockIdx.x / tiles_of_row * side, left = blockIdx.x % tiles_of_row * side;
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const std::int64_t column = left + 4 * lane;
  unsigned largest = 0;
#pragma unroll 2
  for (unsigned g = warp; g < side / 4; g += warps) {
    float v[4][4] = {};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const std::int64_t row = top + 4 * g + r;
      if (row < rows) load_some<fours>(a.x, row * columns + column, columns - column, v[r]);
    }
    unsigned line[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const std::int64_t row = top + 4 * g + r;
      for (int k = 0; k < 4; ++k) largest = larger(largest, magnitude(v[r][k]));
      line[r] = two_in_eight_bits<type>(__fmul_rn(v[r][0], factor), __fmul_rn(v[r][1], factor)) |
                two_in_eight_bits<type>(__fmul_rn(v[r][2], factor), __fmul_rn(v[r][3], factor)) << 16;
      if (a.values != nullptr && row < rows)
        put_bytes<fours>(a.values + row * columns + column, line[r], columns - column);
    }
    if (a.turned == nullptr) continue;
    const unsigned upper = __byte_perm(line[0], line[1], 0x5140), lower = __byte_perm(line[2], line[3], 0x5140),
                   upper_right = __byte_perm(line[0], line[1], 0x7362),
                   lower_right = __byte_perm(line[2], line[3], 0x7362);
    words[place(4 * lane, g)] = __byte_perm(upper, lower, 0x5410);
    words[place(4 * lane + 1, g)] = __byte_perm(upper, lower, 0x7632);
    words[place(4 * lane + 2, g)] = __byte_perm(upper_right, lower_right, 0x5410);
    words[place(4 * lane + 3, g)] = __byte_perm(upper_right, lower_right, 0x7632);
  }
  if (a.turned != nullptr) {
    __syncthreads();
    const std::int64_t row = top + 4 * lane;
    for (unsigned c = warp; c < side && left + c < columns; c += warps)
      put_bytes<fours>(a.turned + (left + c) * rows + row, words[place(c, lane)], rows - row);
  }
  if (a.noted == nullptr) return;
  largest = block_largest(largest, of_warp);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(a.noted), largest);
}

template <Fp8 type, bool fours>
void launch_cast(const Fp8Cast& a, std::int64_t rows, std::int64_t columns, void* stream) {
  const std::int64_t of_row = columns == 0 ? 1 : (columns + side - 1) / side,
                     of_column = rows == 0 ? 1 : (rows + side - 1) / side;  // an empty matrix also has a scale
  launch("fp8_cast", cast_tiles<type, fours>, dim3(static_cast<unsigned>(of_row * of_column)), dim3(threads), 0, stream,
         a, rows, columns, fp8_parts(rows * columns), of_row);
}

bool words_fit(const std::uint8_t* bytes, std::int64_t line) {
  return bytes == nullptr || (reinterpret_cast<std::uintptr_t>(bytes) % 4 == 0 && line % 4 == 0);
}

}  // namespace

void fp8_largest(ConstReals x, const float* chosen, float* parts, std::int64_t n, void* stream) {
  const auto run = in_fours(n, x) ? largest_of_parts<4> : largest_of_parts<1>;
  launch("fp8_largest", run, dim3(static_cast<unsigned>(fp8_parts(n))), dim3(threads), 0, stream, x, chosen, parts, n);
}

void fp8_cast(const Fp8Cast& a, std::int64_t rows, std::int64_t columns, void* stream) {
  const bool fours = in_fours(columns, a.x) && words_fit(a.values, columns) && words_fit(a.turned, rows);
  const auto run = a.type == Fp8::e4m3 ? fours ? launch_cast<Fp8::e4m3, true> : launch_cast<Fp8::e4m3, false>
                   : fours ? launch_cast<Fp8::e5m2, true>
                                       : launch_cast<Fp8::e5m2, false>;
  run(a, rows, columns, stream);
}

}  // namespace tessera::kernels::cuda
