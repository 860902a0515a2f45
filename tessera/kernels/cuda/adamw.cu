#include <tessera/kernels/cuda/adamw.h>

#include <tessera/kernels/cuda/device_code.h>

#include <cmath>

namespace tessera::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr int per_thread = 4;  // elements that are on their way from memory at once
constexpr std::int64_t portion = per_thread * threads;
constexpr std::int64_t most_thread_blocks = 132 * 8;  // enough to fill an H100/H200; the loop takes the rest
constexpr int most_ranges = 48;                       // per launch: they travel as its argument (4 KB at most)

// A range with its scalars, formed in double and rounded once, as the CPU kernel's.
struct Range {
  float* p;
  const float* g;
  float *m, *v;
  std::int64_t n;
  float decay, one_minus_beta1, beta2, one_minus_beta2, step_size, sqrt_correction2, epsilon, gradient_scale;
};

struct Ranges {
  Range range[most_ranges];
  std::int64_t first[most_ranges + 1];  // portions before each range
  int count;
};
static_assert(sizeof(Ranges) <= 4096);

Range with_scalars(const AdamwRange& r) {
  const AdamwArgs& a = r.args;
  const double correction1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
  const double correction2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
  return {.p = r.p,
          .g = r.g,
          .m = r.m,
          .v = r.v,
          .n = r.n,
          .decay = static_cast<float>(1 - a.learning_rate * a.weight_decay),
          .one_minus_beta1 = static_cast<float>(1 - a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .one_minus_beta2 = static_cast<float>(1 - a.beta2),
          .step_size = static_cast<float>(a.learning_rate / correction1),
          .sqrt_correction2 = static_cast<float>(std::sqrt(correction2)),
          .epsilon = static_cast<float>(a.epsilon),
          .gradient_scale = static_cast<float>(a.gradient_scale)};
}

// Elements begin + thread, begin + thread + threads, ...: 16 bytes read and 12 written for about 12 flops each, so
// memory is the bound, and all loads come before the first store.
__device__ void update(const Range& c, std::int64_t begin, float gradient_scale) {
  float p[per_thread], g[per_thread], m[per_thread], v[per_thread];
#pragma unroll
  for (int j = 0; j < per_thread; ++j) {
    const std::int64_t i = begin + j * threads + threadIdx.x;
    const bool inside = i < c.n;
    p[j] = inside ? c.p[i] : 0;
    g[j] = inside ? c.g[i] : 0;
    m[j] = inside ? c.m[i] : 0;
    v[j] = inside ? c.v[i] : 0;
  }
#pragma unroll
  for (int j = 0; j < per_thread; ++j) {
    const std::int64_t i = begin + j * threads + threadIdx.x;
    if (i >= c.n) break;
    const float gi = __fmul_rn(g[j], gradient_scale);
    const float mi = __fmaf_rn(gi - m[j], c.one_minus_beta1, m[j]);
    const float vi = __fmaf_rn(__fmul_rn(gi, c.one_minus_beta2), gi, __fmul_rn(v[j], c.beta2));
    const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(vi), c.sqrt_correction2), c.epsilon);
    c.p[i] = __fsub_rn(__fmul_rn(p[j], c.decay), __fdiv_rn(__fmul_rn(c.step_size, mi), denominator));
    c.m[i] = mi;
    c.v[i] = vi;
  }
}

__global__ void adamw_ranges(Ranges ranges, const StepScalars* scalars) {
  if (scalars != nullptr && scalars->skip != 0) return;
  int r = 0;
  for (std::int64_t k = blockIdx.x; k < ranges.first[ranges.count]; k += gridDim.x) {
    while (k >= ranges.first[r + 1]) ++r;
    const Range& range = ranges.range[r];
    // One of the two factors is 1, so the product is exact.
    const float scale =
        scalars == nullptr ? range.gradient_scale : __fmul_rn(range.gradient_scale, scalars->gradient_scale);
    update(range, (k - ranges.first[r]) * portion, scale);
  }
}

}  // namespace

void adamw(std::span<const AdamwRange> ranges, const StepScalars* scalars, void* stream) {
  for (std::size_t begin = 0; begin < ranges.size(); begin += most_ranges) {
    Ranges some = {};
    for (std::size_t i = begin; i < ranges.size() && i < begin + most_ranges; ++i) {
      some.range[some.count] = with_scalars(ranges[i]);
      some.first[some.count + 1] = some.first[some.count] + (ranges[i].n + portion - 1) / portion;
      ++some.count;
    }
    const std::int64_t portions = some.first[some.count];
    if (portions == 0) continue;
    launch("adamw", adamw_ranges,
           dim3(static_cast<unsigned>(portions < most_thread_blocks ? portions : most_thread_blocks)), dim3(threads), 0,
           stream, some, scalars);
  }
}

}  // namespace tessera::kernels::cuda
