#include <tessera/nn/linear_maps/quantized.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/quantize.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/materialized.h>
#include <tessera/nn/parallel_for.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace tessera::nn {
namespace {

using kernels::dynamic_block;
using kernels::four_bit_block;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

kernels::FourBits numbers_of(QuantType type) {
  return type == QuantType::fp4 ? kernels::FourBits::fp4 : kernels::FourBits::nf4;
}

/// Calls f(first block, end block) on all threads, with at least 256 blocks per call; each block has its own absmax.
template <class F>
void for_blocks(std::int64_t elements, const F& f) {
  parallel_for(
      0, divided_up(divided_up(elements, four_bit_block), dynamic_block), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t group = begin; group < end; ++group)
          f(group * dynamic_block, std::min((group + 1) * dynamic_block, divided_up(elements, four_bit_block)));
      });
}

void quantize_absmax(QuantizedWeight& made) {
  const std::int64_t blocks = made.absmax.numel();
  float* const absmax = made.absmax.data_ptr<float>();
  // Added in a fixed order, so that every process computes the same mean.
  made.absmax_mean = static_cast<float>(std::accumulate(absmax, absmax + blocks, 0.0) /
                                        static_cast<double>(std::max<std::int64_t>(1, blocks)));
  for (std::int64_t i = 0; i < blocks; ++i) absmax[i] -= made.absmax_mean;
  made.absmax_codes = at::empty({blocks}, at::kByte);
  const at::Tensor outer = at::empty({divided_up(blocks, dynamic_block)});
  kernels::quantize_dynamic(absmax, blocks, made.absmax_codes.data_ptr<std::uint8_t>(), outer.data_ptr<float>());
  made.absmax = outer;
}

/// Data that forward saves for backward.
struct QuantizedKept : torch::CustomClassHolder {
  std::shared_ptr<const QuantizedWeight> weight;
  std::optional<at::ScalarType> narrow;
  at::ScalarType input_type = at::kFloat;
  bool has_bias = false;
};

/// a b, fp32 in the given shape; with `narrow`, the factors are first rounded to that type.
at::Tensor product_of(const at::Tensor& a, const at::Tensor& b, std::optional<at::ScalarType> narrow,
                      at::IntArrayRef shape) {
  const at::Tensor out = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  const at::Tensor rows = out.view({a.size(0), b.size(1)});
  if (narrow)
    multiply_half(rows, a.to(*narrow), b.to(*narrow));
  else
    multiply(rows, a, b);
  return out;
}

struct QuantizedLinear : torch::autograd::Function<QuantizedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<QuantizedKept>& kept) {
    const Materialized materialized({&x, pointer(bias)});
    const QuantizedWeight& weight = *kept->weight;
    auto shape = x.sizes().vec();
    shape.back() = weight.out;
    const at::Tensor rows = x.reshape({-1, weight.in}).to(kept->narrow.value_or(at::kFloat)).contiguous();
    at::Tensor y = product_of(rows, dequantize(weight).t(), kept->narrow, shape);
    if (bias) y.add_(*bias);
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return kept->input_type == at::kFloat ? y : y.to(kept->input_type);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<QuantizedKept>(ctx->saved_data["kept"].toCapsule());
    const QuantizedWeight& weight = *kept->weight;
    const at::Tensor dy = gradients[0].to(at::kFloat).contiguous(), rows = dy.view({-1, weight.out});
    at::Tensor dx, dbias;
    if (ctx->needs_input_grad(0)) {
      auto shape = dy.sizes().vec();
      shape.back() = weight.in;
      dx = product_of(rows, dequantize(weight), kept->narrow, shape).to(kept->input_type);
    }
    if (kept->has_bias && ctx->needs_input_grad(1)) dbias = rows.sum(0);
    return {dx, dbias, at::Tensor()};
  }
};

}  // namespace

std::int64_t QuantizedWeight::bytes() const {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : {codes, absmax, absmax_codes})
    if (tensor.defined()) sum += static_cast<std::int64_t>(tensor.nbytes());
  return sum;
}

QuantizedWeight quantize(const at::Tensor& weight, const QuantizedForm& form) {
  TESSERA_CHECK(weight.dim() == 2 && weight.device().is_cpu(), "cannot quantize a weight of ", weight.dim(),
                " dimensions on ", weight.device().str(), "; it must be a matrix on the CPU");
  TESSERA_CHECK(form.bits == 4 || form.bits == 8, "weights of ", form.bits, " bits are not supported; use 4 or 8");
  const at::NoGradGuard no_grad;
  const at::Tensor whole = weight.detach().to(at::kFloat).contiguous();
  QuantizedWeight made{.form = form, .out = whole.size(0), .in = whole.size(1)};
  const float* const from = whole.const_data_ptr<float>();
  if (form.bits == 8) {
    made.codes = at::empty({made.out, made.in}, at::kChar);
    made.absmax = at::empty({made.out});
    auto* const codes = made.codes.data_ptr<std::int8_t>();
    float* const absmax = made.absmax.data_ptr<float>();
    for_rows(made.out, made.in, [&](std::int64_t begin, std::int64_t end) {
      kernels::quantize_int8_rows(from + begin * made.in, end - begin, made.in, codes + begin * made.in,
                                  absmax + begin);
    });
    return made;
  }
  const std::int64_t n = whole.numel();
  made.codes = at::empty({divided_up(n, 2)}, at::kByte);
  made.absmax = at::empty({divided_up(n, four_bit_block)});
  auto* const codes = made.codes.data_ptr<std::uint8_t>();
  float* const absmax = made.absmax.data_ptr<float>();
  for_blocks(n, [&](std::int64_t first, std::int64_t end) {
    const std::int64_t begin = first * four_bit_block, count = std::min(n, end * four_bit_block) - begin;
    kernels::quantize_four_bits(from + begin, count, numbers_of(form.type), codes + begin / 2, absmax + first);
  });
  if (form.double_quant) quantize_absmax(made);
  return made;
}

bool is_finite(const QuantizedWeight& weight) {
  const float* const absmax = weight.absmax.const_data_ptr<float>();
  return std::isfinite(weight.absmax_mean) &&
         std::all_of(absmax, absmax + weight.absmax.numel(), [](float x) { return std::isfinite(x); });
}

at::Tensor dequantize(const QuantizedWeight& weight) {
  const at::Tensor whole = at::empty({weight.out, weight.in}, at::TensorOptions().dtype(at::kFloat));
  float* const to = whole.data_ptr<float>();
  const float* const absmax = weight.absmax.const_data_ptr<float>();
  if (weight.form.bits == 8) {
    const auto* const codes = weight.codes.const_data_ptr<std::int8_t>();
    for_rows(weight.out, weight.in, [&](std::int64_t begin, std::int64_t end) {
      kernels::dequantize_int8_rows(codes + begin * weight.in, absmax + begin, end - begin, weight.in,
                                    to + begin * weight.in);
    });
    return whole;
  }
  const std::int64_t n = whole.numel();
  const auto* const codes = weight.codes.const_data_ptr<std::uint8_t>();
  const auto* const absmax_codes =
      weight.form.double_quant ? weight.absmax_codes.const_data_ptr<std::uint8_t>() : nullptr;
  for_blocks(n, [&](std::int64_t first, std::int64_t end) {
    const std::int64_t begin = first * four_bit_block, count = std::min(n, end * four_bit_block) - begin;
    std::array<float, dynamic_block> widened;
    const float* scales = absmax + first;
    if (absmax_codes != nullptr) {
      kernels::dequantize_dynamic(absmax_codes, absmax, weight.absmax_mean, first, end - first, widened.data());
      scales = widened.data();
    }
    kernels::dequantize_four_bits(codes + begin / 2, scales, count, numbers_of(weight.form.type), to + begin);
  });
  return whole;
}

at::Tensor quantized_linear(const at::Tensor& x, const std::shared_ptr<const QuantizedWeight>& weight,
                            const at::Tensor& bias) {
  TESSERA_CHECK(x.device().is_cpu(), "a quantized weight needs its input on the CPU, but it is on ", x.device().str());
  TESSERA_CHECK(x.dim() >= 1 && x.size(-1) == weight->in, "an input of ", x.dim() == 0 ? 0 : x.size(-1),
                " features for a weight [", weight->out, ", ", weight->in, "]");
  if (x.numel() == 0) {
    auto shape = x.sizes().vec();
    shape.back() = weight->out;
    return at::zeros(shape, x.options());
  }
  auto kept = c10::make_intrusive<QuantizedKept>();
  kept->weight = weight;
  kept->narrow = weight->form.compute ? weight->form.compute : autocast_type(at::kCPU);
  if (kept->narrow == at::kFloat) kept->narrow.reset();
  kept->input_type = x.scalar_type();
  kept->has_bias = bias.defined();
  return QuantizedLinear::apply(x, maybe(bias), kept);
}

}  // namespace tessera::nn
