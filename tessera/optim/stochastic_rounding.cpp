#include <tessera/optim/stochastic_rounding.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <tessera/base/error.h>
#include <tessera/optim/device_kernels.h>

#include <algorithm>

namespace tessera::optim {

std::uint64_t rounding_key(std::uint64_t seed, std::int64_t step, const std::string& parameter) {
  std::uint64_t name = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : parameter) name = (name ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return kernels::mix_bits(kernels::mix_bits(kernels::mix_bits(seed) + static_cast<std::uint64_t>(step)) ^ name);
}

void round_to_bf16(const at::Tensor& from, const at::Tensor& to, const kernels::Bf16Rounding& rounding, int which) {
  if (from.is_cuda()) {
    TESSERA_CHECK(from.is_contiguous() && to.is_contiguous() && from.numel() == to.numel(), "rounding to bfloat16 of ",
                  from.sizes(), " into ", to.sizes());
    const c10::DeviceGuard guard(from.device());  // the kernel runs on the current device's stream
    return device_kernels().round_to_bf16(from.const_data_ptr<float>(), static_cast<std::uint16_t*>(to.data_ptr()),
                                          from.numel(), rounding, which);
  }
  if (!rounding.stochastic) {
    to.copy_(from);
    return;
  }
  constexpr std::int64_t period = std::int64_t{1} << 32, mask = period - 1;
  const at::Tensor source = from.view({-1}), target = to.view({-1});
  for (std::int64_t done = 0; done < source.numel();) {
    const std::int64_t first = rounding.first + done, low = first % period;
    const std::int64_t count = std::min(source.numel() - done, period - low);
    const std::uint64_t key = kernels::mix_bits(rounding.key + static_cast<std::uint64_t>(first / period));
    const at::Tensor value = source.narrow(0, done, count);
    // Computed as in RandomBf16States::random() of state_loops.h, in the lower halves of 64-bit integers.
    at::Tensor x = at::arange(low, low + count, value.options().dtype(at::kLong));
    x = x.bitwise_xor(static_cast<std::int64_t>(key & mask));
    x = x.bitwise_xor(x.bitwise_right_shift(16)).mul(0x7feb352d).bitwise_and(mask);
    x = x.bitwise_xor(x.bitwise_right_shift(15)).add(static_cast<std::int64_t>(key >> 32)).bitwise_and(mask);
    x = x.mul(0x846ca68b).bitwise_and(mask);
    x = x.bitwise_xor(x.bitwise_right_shift(16));
    const at::Tensor random = (which == 0 ? x.bitwise_right_shift(16) : x.bitwise_and(0xffff)).to(at::kInt);
    const at::Tensor bits = (value.view(at::kInt) + random).bitwise_and(~0xffff);
    target.narrow(0, done, count).copy_(at::where(value.isnan(), value, bits.view(at::kFloat)));
    done += count;
  }
}

}  // namespace tessera::optim
