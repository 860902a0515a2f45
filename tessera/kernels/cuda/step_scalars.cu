#include <tessera/kernels/cuda/step_scalars.h>

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

constexpr unsigned threads = 96;
static_assert(threads >= exact_words);

// There are only 71 words per step, so all threads load them and one thread adds them.
__device__ std::int64_t* gathered(const std::int64_t* words) {
  __shared__ std::int64_t own[exact_words];
  if (threadIdx.x < exact_words) own[threadIdx.x] = words[threadIdx.x];
  __syncthreads();
  return own;
}

__global__ void carry(std::int64_t* words) {
  std::int64_t* const own = gathered(words);
  if (threadIdx.x == 0) {
    carry_exact(own);
    for (int i = exact_digits; i < exact_words; ++i) own[i] = own[i] > 0 ? 1 : 0;
  }
  __syncthreads();
  if (threadIdx.x < exact_words) words[threadIdx.x] = own[threadIdx.x];
}

__global__ void form(const std::int64_t* words, double max_norm, StepScalars* scalars) {
  std::int64_t* const own = gathered(words);
  if (threadIdx.x != 0) return;
  const double norm = __dsqrt_rn(exact_value(own));
  const double coefficient = max_norm > 0 ? __ddiv_rn(max_norm, __dadd_rn(norm, 1e-6)) : 1;
  scalars->norm = norm;
  scalars->gradient_scale = static_cast<float>(coefficient < 1 ? coefficient : 1);
  scalars->skip = norm < __longlong_as_double(0x7ff0000000000000LL) ? 0 : 1;  // true for NaN, too
}

}  // namespace

void carry_words(std::int64_t* words, void* stream) {
  launch("carry_words", carry, dim3(1), dim3(threads), 0, stream, words);
}

void form_step_scalars(const std::int64_t* words, double max_norm, StepScalars* scalars, void* stream) {
  launch("step_scalars", form, dim3(1), dim3(threads), 0, stream, words, max_norm, scalars);
}

}  // namespace tessera::kernels::cuda
