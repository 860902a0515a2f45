#include <tessera/kernels/cuda/adamw.h>

#include <tessera/kernels/cuda/bf16_states.h>

#include <cmath>

namespace tessera::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr int per_thread = 4;  // adjacent elements, in one access per array if memory is aligned
constexpr std::int64_t portion = per_thread * threads;
constexpr std::int64_t most_thread_blocks = 132 * 8;  // enough to fill an H100/H200; the loop covers the rest

// The values are computed in double and rounded once, as in the CPU kernel.
struct Scalars {
  float decay, gradient_decay, one_minus_beta1, beta2, one_minus_beta2, step_size, sqrt_correction2, epsilon,
      gradient_scale;
  bool decay_in_gradient;
};

Scalars scalars_of(const AdamwArgs& a) {
  const double correction1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
  const double correction2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
  return {.decay = static_cast<float>(1 - a.learning_rate * a.weight_decay),
          .gradient_decay = static_cast<float>(a.weight_decay),
          .one_minus_beta1 = static_cast<float>(1 - a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .one_minus_beta2 = static_cast<float>(1 - a.beta2),
          .step_size = static_cast<float>(a.learning_rate / correction1),
          .sqrt_correction2 = static_cast<float>(std::sqrt(correction2)),
          .epsilon = static_cast<float>(a.epsilon),
          .gradient_scale = static_cast<float>(a.gradient_scale),
          .decay_in_gradient = a.decay_in_gradient};
}

struct Fp32States {
  static constexpr Real type = Real::float32;
  float *m, *v;
  __device__ void store(std::int64_t i, float first, float second) const { m[i] = first, v[i] = second; }
  __device__ void store_four(std::int64_t i, const float (&first)[4], const float (&second)[4]) const {
    cuda::store(Reals{m, type}, i, first);
    cuda::store(Reals{v, type}, i, second);
  }
};

struct Bf16States {
  static constexpr Real type = Real::bfloat16;
  unsigned short *m, *v;
  StateRounding rounding;

  __device__ void store(std::int64_t i, float first, float second) const {
    m[i] = rounded_first(first, rounding, i);
    v[i] = rounded_second(second, rounding, i);
  }
  __device__ void store_four(std::int64_t i, const float (&first)[4], const float (&second)[4]) const {
    unsigned a[4], b[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      a[j] = rounded_first(first[j], rounding, i + j);
      b[j] = rounded_second(second[j], rounding, i + j);
    }
    put_four(m + i, make_uint2(a[0] | a[1] << 16, a[2] | a[3] << 16));
    put_four(v + i, make_uint2(b[0] | b[1] << 16, b[2] | b[3] << 16));
  }
};

template <class States>
struct Range {
  float* p;
  const float* g;
  States states;
  std::int64_t n;
  Scalars scalars;
  bool in_fours = false;
};

template <class States>
struct Ranges {
  static constexpr int most = (4096 - 16) / (sizeof(Range<States>) + 8);  // passed as the launch's argument
  Range<States> range[most];
  std::int64_t first[most + 1];  // number of portions before each range
  int count;
};
static_assert(sizeof(Ranges<Fp32States>) + 8 <= 4096 && sizeof(Ranges<Bf16States>) + 8 <= 4096);

__device__ inline void update(const Scalars& c, float scale, float& p, float g, float& m, float& v) {
  g = __fmul_rn(g, scale);
  if (c.decay_in_gradient) g = __fmaf_rn(p, c.gradient_decay, g);
  m = __fmaf_rn(g - m, c.one_minus_beta1, m);
  v = __fmaf_rn(__fmul_rn(g, c.one_minus_beta2), g, __fmul_rn(v, c.beta2));
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), c.sqrt_correction2), c.epsilon);
  const float step = __fdiv_rn(__fmul_rn(c.step_size, m), denominator);
  p = c.decay_in_gradient ? __fsub_rn(p, step) : __fmaf_rn(p, c.decay, -step);
}

// Elements i .. i + 3: about 12 flops per element against 16 bytes read and 12 written (with bf16 states 12 and 8), so
// the kernel is memory-bound, and all loads precede the first store.
template <class States>
__device__ void update(const Range<States>& r, std::int64_t i, float scale) {
  const ConstReals p_of{r.p, Real::float32}, g_of{r.g, Real::float32}, m_of{r.states.m, States::type},
      v_of{r.states.v, States::type};
  float p[per_thread], g[per_thread], m[per_thread], v[per_thread];
  if (r.in_fours && i + per_thread <= r.n) {
    load(p_of, i, p), load(g_of, i, g), load(m_of, i, m), load(v_of, i, v);
#pragma unroll
    for (int j = 0; j < per_thread; ++j) update(r.scalars, scale, p[j], g[j], m[j], v[j]);
    store(Reals{r.p, Real::float32}, i, p);
    r.states.store_four(i, m, v);
    return;
  }
#pragma unroll
  for (int j = 0; j < per_thread; ++j) {
    const bool inside = i + j < r.n;
    p[j] = inside ? load(p_of, i + j) : 0;
    g[j] = inside ? load(g_of, i + j) : 0;
    m[j] = inside ? load(m_of, i + j) : 0;
    v[j] = inside ? load(v_of, i + j) : 0;
  }
#pragma unroll
  for (int j = 0; j < per_thread; ++j) {
    if (i + j >= r.n) break;
    update(r.scalars, scale, p[j], g[j], m[j], v[j]);
    r.p[i + j] = p[j];
    r.states.store(i + j, m[j], v[j]);
  }
}

template <class States>
__global__ void adamw_ranges(Ranges<States> ranges, const StepScalars* scalars) {
  if (scalars != nullptr && scalars->skip != 0) return;
  int r = 0;
  for (std::int64_t k = blockIdx.x; k < ranges.first[ranges.count]; k += gridDim.x) {
    while (k >= ranges.first[r + 1]) ++r;
    const Range<States>& range = ranges.range[r];
    // One of the two factors is 1, so the product is exact.
    const float own = range.scalars.gradient_scale;
    update(range, (k - ranges.first[r]) * portion + per_thread * threadIdx.x,
           scalars == nullptr ? own : __fmul_rn(own, scalars->gradient_scale));
  }
}

/// Launches whenever the maximum number of ranges per launch is reached, and at the end.
template <class States>
class Launches {
 public:
  Launches(const StepScalars* scalars, void* stream) : scalars_(scalars), stream_(stream) {}

  void add(const Range<States>& range) {
    if (range.n == 0) return;
    const int i = some_.count++;
    some_.range[i] = range;
    some_.range[i].in_fours = in_fours(per_thread, Reals{range.p, Real::float32}, seen(range.g),
                                       Reals{range.states.m, States::type}, Reals{range.states.v, States::type});
    some_.first[i + 1] = some_.first[i] + (range.n + portion - 1) / portion;
    if (some_.count == Ranges<States>::most) launch_some();
  }
  void launch_some() {
    const std::int64_t portions = some_.first[some_.count];
    if (portions == 0) return;
    launch("adamw", adamw_ranges<States>,
           dim3(static_cast<unsigned>(portions < most_thread_blocks ? portions : most_thread_blocks)), dim3(threads), 0,
           stream_, some_, scalars_);
    some_ = {};
  }

 private:
  const StepScalars* scalars_;
  void* stream_;
  Ranges<States> some_ = {};
};

}  // namespace

void adamw(std::span<const AdamwRange> ranges, const StepScalars* scalars, void* stream) {
  Launches<Fp32States> launches(scalars, stream);
  for (const AdamwRange& r : ranges)
    launches.add({.p = r.p, .g = r.g, .states = {r.m, r.v}, .n = r.n, .scalars = scalars_of(r.args)});
  launches.launch_some();
}

void adamw_bf16(std::span<const AdamwBf16Range> ranges, const StepScalars* scalars, void* stream) {
  Launches<Bf16States> launches(scalars, stream);
  for (const AdamwBf16Range& r : ranges) {
    const Scalars own = scalars_of(r.args);
    for_each_rounding(r.rounding, r.n, [&](const StateRounding& rounding, std::int64_t offset, std::int64_t count) {
      launches.add({.p = r.p + offset,
                    .g = r.g + offset,
                    .states = {r.m + offset, r.v + offset, rounding},
                    .n = count,
                    .scalars = own});
    });
  }
  launches.launch_some();
}

}  // namespace tessera::kernels::cuda
