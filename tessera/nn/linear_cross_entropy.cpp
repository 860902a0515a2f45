#include <tessera/nn/linear_cross_entropy.h>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/softmax_cross_entropy.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/device/head_loss.h>
#include <tessera/nn/device/kernels.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/label_smoothing.h>
#include <tessera/nn/materialized.h>
#include <tessera/nn/parameter_semantics.h>
#include <tessera/nn/softcap.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Tokens per chunk. Per chunk, memory is passed over about four times for the chunk's logits and twice for dWeight:
/// with as many tokens as the hidden size the two balance, and the logits take no more memory than dWeight. Fewer than
/// 256 tokens slow the products down.
std::int64_t chunk_rows(std::int64_t rows, std::int64_t hidden_size) {
  return std::min(rows, std::max<std::int64_t>(hidden_size, 256));
}

/// targets[b T + t] = labels[b, t + 1], or labels[b, t]; with `next` the last position of each row has no target.
/// Labels must be in [0, V) or ignored.
std::vector<std::int64_t> targets_of(const at::Tensor& labels, std::int64_t vocabulary, LabelPlace place) {
  const at::Tensor contiguous = labels.contiguous();
  const std::int64_t b = labels.size(0), t = labels.size(1), *in = contiguous.data_ptr<std::int64_t>();
  const std::int64_t shift = place == LabelPlace::next ? 1 : 0;
  std::vector<std::int64_t> targets(static_cast<std::size_t>(b * t), ignored_label);
  for (std::int64_t i = 0; i < b; ++i)
    for (std::int64_t j = shift; j < t; ++j) {
      const std::int64_t label = in[i * t + j];
      TESSERA_CHECK(label == ignored_label || (label >= 0 && label < vocabulary), "label ", label, " at [", i, ", ", j,
                    "] is outside the vocabulary of ", vocabulary, " and is not ", ignored_label);
      targets[static_cast<std::size_t>(i * t + j - shift)] = label;
    }
  return targets;
}

/// The CPU implementation, in fp32.
HeadLoss host_head_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& labels, double scale, const LossOptions& form, HeadGradients wanted) {
  const double smoothing = form.label_smoothing;
  const auto half = autocast_type(at::kCPU);
  const auto narrow = [&](const at::Tensor& t) { return half ? t.to(*half) : t; };
  const auto times = half ? multiply_half : multiply;
  const std::int64_t c = hidden.size(2), v = weight.size(0), n = hidden.size(0) * hidden.size(1),
                     chunk = chunk_rows(n, c);
  const auto targets = targets_of(labels, v, form.place);
  const at::Tensor x = narrow(hidden.reshape({n, c})), w = narrow(weight);
  const auto options = hidden.options();
  at::Tensor dx, dweight, dbias, buffer = at::empty({chunk, v}, options);
  if (wanted.hidden) dx = at::empty({n, c}, options);
  if (wanted.weight) dweight = at::empty({v, c}, options);
  if (wanted.bias) dbias = at::zeros({v}, options);
  double total = 0;
  for (std::int64_t first = 0; first < n; first += chunk) {
    const std::int64_t rows = std::min(chunk, n - first);
    const at::Tensor part = x.narrow(0, first, rows);
    const at::Tensor logits = buffer.narrow(0, 0, rows);
    times(logits, part, w.t(), /*accumulate=*/false);
    if (bias.defined()) logits.add_(bias);
    softcap_(logits, form.softcap);
    const at::Tensor slope = form.softcap > 0 && wanted.any() ? softcap_slope(logits, form.softcap) : at::Tensor();
    std::vector<double> losses(static_cast<std::size_t>(at::get_num_threads()), 0.0);
    for_rows(rows, v, [&](std::int64_t begin, std::int64_t end) {
      double& loss = losses[static_cast<std::size_t>(at::get_thread_num())];
      float* const part_of_rows = data(logits) + begin * v;
      const std::int64_t* const goals = targets.data() + first + begin;
      if (smoothing > 0) loss += smoothing_loss(part_of_rows, goals, end - begin, v, smoothing);
      loss +=
          kernels::softmax_cross_entropy(part_of_rows, goals, end - begin, v, static_cast<float>(scale), wanted.any());
      if (smoothing > 0 && wanted.any()) add_smoothing_gradient(part_of_rows, goals, end - begin, v, smoothing, scale);
    });
    for (const double loss : losses) total += loss;
    if (!wanted.any()) continue;
    if (slope.defined()) logits.mul_(slope);
    if (dbias.defined()) dbias.add_(logits.sum(0));
    const at::Tensor dlogits = narrow(logits);
    if (wanted.hidden) times(dx.narrow(0, first, rows), dlogits, w, /*accumulate=*/false);
    if (wanted.weight) times(dweight, dlogits.t(), part, /*accumulate=*/first > 0);
  }
  if (dx.defined()) dx = dx.view(hidden.sizes());
  return {at::scalar_tensor(total * scale, options), dx, dweight, dbias};
}

/// g *= factor, in place.
void multiply_in_place(const at::Tensor& g, const at::Tensor& factor) {
  const DeviceKernels* const device = factor.scalar_type() == at::kFloat ? device_kernels({g, factor}) : nullptr;
  if (device == nullptr || !g.is_contiguous()) {
    g.mul_(factor);
    return;
  }
  const c10::DeviceGuard guard(g.device());
  device->multiply_unless_one(reals(g), factor.const_data_ptr<float>(), g.numel());
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& head_bias, const at::Tensor& labels, double scale,
                            const LossOptions& form, HeadGradients wanted) {
    const at::Tensor bias = head_bias.value_or(at::Tensor());
    const Materialized materialized({&hidden, &weight, &bias});
    const HeadLoss formed = hidden.is_cuda() ? device_head_loss(hidden, weight, bias, labels, scale, form, wanted)
                                             : host_head_loss(hidden, weight, bias, labels, scale, form, wanted);
    std::vector<at::Tensor> gradients = {formed.dhidden, formed.dweight, formed.dbias};
    for (at::Tensor& g : gradients)
      if (!g.defined()) g = at::empty({0});
    ctx->saved_data["gradients"] = gradients;
    return formed.loss;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto place = ctx->saved_data.find("gradients");
    TESSERA_CHECK(
        place != ctx->saved_data.end(),
        "linear_cross_entropy: a second backward is not possible, because the first one released the gradients");
    auto formed = place->second.toTensorVector();
    ctx->saved_data.erase(
        place);  // so that autograd can move the gradients into the parameters instead of copying them
    const at::Tensor& factor = gradients[0];
    const bool is_one =
        factor.is_cpu() && factor.item<double>() == 1;  // reading a number on a device would block the host
    for (at::Tensor& g : formed) {
      if (g.numel() == 0)
        g = at::Tensor();
      else if (!is_one)
        multiply_in_place(g, factor);
    }
    return {formed[0], formed[1], formed[2], at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                double scale, const LossOptions& options, const at::Tensor& bias) {
  const double label_smoothing = options.label_smoothing;
  TESSERA_CHECK(label_smoothing >= 0 && label_smoothing < 1, "label_smoothing is ", label_smoothing,
                "; it must be in [0, 1)");
  TESSERA_CHECK(hidden.dim() == 3 && weight.dim() == 2 && labels.dim() == 2,
                "expected hidden [B, T, C], weight [V, C], labels [B, T]");
  TESSERA_CHECK(!bias.defined() || (bias.dim() == 1 && bias.is_contiguous()), "expected bias [V]");
  if (const ParameterSemantics* cut = semantics_of(weight)) [[unlikely]]
    return cut->linear_cross_entropy(hidden, weight, labels, scale, options, bias);
  const std::int64_t t = hidden.size(1), c = hidden.size(2);
  const bool fuses = fusable({hidden, weight, bias}) || device_computes_head(hidden, weight, bias);
  if (fuses && weight.is_contiguous() && hidden.numel() > 0) {
    const bool gradient = at::GradMode::is_enabled();
    const HeadGradients wanted{.hidden = gradient && hidden.requires_grad(),
                               .weight = gradient && weight.requires_grad(),
                               .bias = gradient && bias.defined() && bias.requires_grad()};
    return LinearCrossEntropy::apply(hidden, weight, maybe(bias), labels, scale, options, wanted);
  }
  const std::int64_t shift = options.place == LabelPlace::next ? 1 : 0;
  const at::Tensor rows = hidden.slice(1, 0, t - shift).reshape({-1, c});
  const at::Tensor targets = labels.slice(1, shift).reshape({-1});
  at::Tensor logits = at::mm(rows, weight.t());
  if (bias.defined()) logits = logits + bias;
  const auto wide = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::cross_entropy_loss(softcap(logits.to(wide), options.softcap), targets, {}, at::Reduction::Sum,
                                ignored_label, label_smoothing) *
         scale;
}

}  // namespace tessera::nn
