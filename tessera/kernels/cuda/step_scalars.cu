#include <tessera/kernels/cuda/step_scalars.h>

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

// One thread: 71 words once a step.
__global__ void carry(std::int64_t* words) {
  carry_exact(words);
  for (int i = exact_digits; i < exact_words; ++i) words[i] = words[i] > 0 ? 1 : 0;
}

__global__ void form(std::int64_t* words, double max_norm, StepScalars* scalars) {
  const double norm = __dsqrt_rn(exact_value(words));
  const double coefficient = max_norm > 0 ? __ddiv_rn(max_norm, __dadd_rn(norm, 1e-6)) : 1;
  scalars->norm = norm;
  scalars->gradient_scale = static_cast<float>(coefficient < 1 ? coefficient : 1);
  scalars->skip = norm < __longlong_as_double(0x7ff0000000000000LL) ? 0 : 1;  // NaN is below nothing
}

}  // namespace

void carry_words(std::int64_t* words, void* stream) {
  launch("carry_words", carry, dim3(1), dim3(1), 0, stream, words);
}

void form_step_scalars(std::int64_t* words, double max_norm, StepScalars* scalars, void* stream) {
  launch("step_scalars", form, dim3(1), dim3(1), 0, stream, words, max_norm, scalars);
}

}  // namespace tessera::kernels::cuda
