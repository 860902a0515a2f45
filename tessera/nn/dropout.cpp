#include <tessera/nn/dropout.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/dropout.h>
#include <tessera/nn/capturing.h>
#include <tessera/nn/device/kernels.h>
#include <tessera/nn/device/random_lines.h>
#include <tessera/nn/fused.h>

#include <cmath>
#include <mutex>
#include <utility>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldPlace : torch::CustomClassHolder {
  explicit HeldPlace(RandomPlace held) : place(std::move(held)) {}
  RandomPlace place;
};

/// Calls f(index of the line, its key) for the lines of [rows, tokens], on several threads.
template <class F>
void for_lines(std::int64_t rows, std::int64_t tokens, std::int64_t columns, const RandomPlace& place, const F& f) {
  for_rows(rows * tokens, columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const auto row = static_cast<std::uint64_t>(place.row + line / tokens);
      f(line, kernels::mixed_key(kernels::mixed_key(place.key, row),
                                 static_cast<std::uint64_t>(place.position(line % tokens))));
    }
  });
}

/// The device on which numbers for a tensor on `device` are drawn.
c10::Device place_of_numbers(c10::Device device) { return device.is_cuda() ? device : c10::Device(c10::kCPU); }

/// Rows and tokens of x [B, t, C] or [B, C].
std::pair<std::int64_t, std::int64_t> lines_of(const at::Tensor& x) {
  return {x.size(0), x.dim() == 3 ? x.size(1) : 1};
}

/// y = 0 or x * scale. x and y are contiguous; y may be x.
void drop(const at::Tensor& x, const at::Tensor& y, double p, float scale, const RandomPlace& place) {
  const auto [rows, tokens] = lines_of(x);
  const std::int64_t columns = x.size(-1);
  const auto limit = static_cast<std::uint32_t>(std::llround(p * 4294967295.0));
  if (const DeviceKernels* device = device_kernels({x})) {
    const c10::DeviceGuard guard(x.device());
    const DeviceLines there = device_lines(place, rows, /*heads=*/0, tokens, columns, {}, x.device());
    device->dropout(const_reals(x), reals(y), there.lines, limit, scale);
    return;
  }
  for_lines(rows, tokens, columns, place, [&](std::int64_t line, std::uint64_t key) {
    const std::int64_t o = line * columns;
    kernels::dropout(data(x) + o, data(y) + o, columns, key, static_cast<std::uint32_t>(place.column), limit, scale);
  });
}

at::Tensor dropped(const at::Tensor& x, double p, const RandomPlace& place) {
  if (fusable({x}) || device_kernels({x}) != nullptr) {
    const at::Tensor from = x.contiguous(), to = at::empty(x.sizes(), x.options());
    drop(from, to, p, static_cast<float>(1 / (1 - p)), place);
    return to;
  }
  if (capturing()) {
    const auto [rows, tokens] = lines_of(x);
    const at::Tensor mask = captured_draws->kept(place, {rows, tokens}, x.size(-1), p);
    return x * mask.view(x.sizes()).to(x.scalar_type()) * (1 / (1 - p));
  }
  // Other types: a mask of 0 or 1 in fp32, and the factor in x's own precision.
  const at::Tensor kept = at::ones(x.sizes(), at::TensorOptions(at::kFloat).device(place_of_numbers(x.device())));
  drop(kept, kept, p, 1, place);
  return x * kept.to(x.options()) * (1 / (1 - p));
}

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double p, const RandomPlace& place) {
    ctx->saved_data["p"] = p;
    ctx->saved_data["place"] = c10::IValue::make_capsule(c10::make_intrusive<HeldPlace>(place));
    return dropped(x, p, place);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto held = c10::static_intrusive_pointer_cast<HeldPlace>(ctx->saved_data["place"].toCapsule());
    return {dropped(gradients[0], ctx->saved_data["p"].toDouble(), held->place), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RandomPlace RandomPlace::at(std::uint64_t number) const {
  RandomPlace place = *this;
  place.key = kernels::mixed_key(key, number);
  if (capturing()) {
    auto extended = numbers ? *numbers : std::vector<std::uint64_t>();
    extended.push_back(number);
    place.numbers = std::make_shared<const std::vector<std::uint64_t>>(std::move(extended));
  }
  return place;
}

at::Tensor dropout(const at::Tensor& x, double p, const RandomPlace& place) {
  TESSERA_CHECK(p >= 0 && p <= 1, "dropout of ", p, "; it must be in [0, 1]");
  TESSERA_CHECK(x.dim() == 2 || x.dim() == 3, "dropout expects [B, t, C] or [B, C], got ", c10::str(x.sizes()));
  if (p == 0) return x;
  if (p == 1) return x * 0;
  return Dropout::apply(x, p, place);
}

at::Tensor uniform(std::int64_t rows, std::int64_t tokens, std::int64_t columns, const RandomPlace& place,
                   c10::Device device) {
  if (capturing()) throw InputError("added random numbers (NEFTune's noise) cannot be compiled into a step");
  const at::Tensor y =
      at::empty({rows, tokens, columns}, at::TensorOptions(at::kFloat).device(place_of_numbers(device)));
  if (const DeviceKernels* kernels = device_kernels({y})) {
    const c10::DeviceGuard guard(y.device());
    const DeviceLines there = device_lines(place, rows, /*heads=*/0, tokens, columns, {}, y.device());
    kernels->uniform(y.mutable_data_ptr<float>(), there.lines);
    return y;
  }
  for_lines(rows, tokens, columns, place, [&](std::int64_t line, std::uint64_t key) {
    kernels::uniform(data(y) + line * columns, columns, key, static_cast<std::uint32_t>(place.column));
  });
  return y.to(device);
}

std::uint64_t drawn_key() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace tessera::nn
