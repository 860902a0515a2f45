#include <tessera/nn/sequence_log_probabilities.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/linear_cross_entropy.h>
#include <tessera/nn/materialized.h>
#include <tessera/nn/softcap.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Tokens whose logits exist at a time: as in linear_cross_entropy, logits take no more memory than the head's
/// gradient.
std::int64_t chunk_of(const at::Tensor& weight) { return std::max<std::int64_t>(weight.size(1), 256); }

struct Head {
  at::Tensor weight, bias;  // weight in the type of the products
  double softcap = 0;

  /// fp32 (or double) logits of rows [n, C].
  at::Tensor logits(const at::Tensor& rows) const {
    at::Tensor logits = at::mm(rows, weight.t());
    logits = logits.to(weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    if (bias.defined()) logits = logits + bias;
    return nn::softcap(logits, softcap);
  }
};

struct SequenceLogProbabilities : torch::autograd::Function<SequenceLogProbabilities> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& labels, double softcap) {
    const at::Tensor head_bias = bias.value_or(at::Tensor());
    const Materialized materialized({&hidden, &weight, &head_bias});
    const auto half = libtorch_autocast_type(hidden.device().type());
    const std::int64_t b = hidden.size(0), t = hidden.size(1), c = hidden.size(2);
    const at::Tensor targets = labels.slice(1, 1).reshape({-1});
    const at::Tensor places = targets.ne(ignored_label).nonzero().view({-1});  // indices of scored positions in [B
                                                                               // (T-1)]
    const at::Tensor goals = targets.index_select(0, places);
    const at::Tensor row = places.div(t - 1, "floor");
    const at::Tensor position = places + row;  // in [B T]
    const at::Tensor scored = hidden.reshape({b * t, c}).index_select(0, position);
    const at::ScalarType narrow = half.value_or(weight.scalar_type());
    const Head head{weight.to(narrow), head_bias, softcap};
    at::Tensor sums = at::zeros({b}, hidden.options().dtype(at::kDouble));
    for (std::int64_t first = 0, chunk = chunk_of(weight); first < places.size(0); first += chunk) {
      const std::int64_t n = std::min(chunk, places.size(0) - first);
      const at::Tensor logits = head.logits(scored.narrow(0, first, n).to(narrow));
      const at::Tensor goal = goals.narrow(0, first, n).unsqueeze(1);
      const at::Tensor own = logits.gather(1, goal).squeeze(1) - logits.logsumexp(1);
      sums.index_add_(0, row.narrow(0, first, n), own.to(at::kDouble));
    }
    ctx->save_for_backward({scored, weight, head_bias, goals, row, position});
    ctx->saved_data["softcap"] = softcap;
    ctx->saved_data["narrow"] = static_cast<std::int64_t>(narrow);
    ctx->saved_data["shape"] = std::vector<std::int64_t>{b, t, c};
    return sums;
  }

  /// d log p / d logits = onehot - softmax.
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &scored = saved[0], &weight = saved[1], &bias = saved[2], &goals = saved[3], &row = saved[4],
                     &position = saved[5];
    const Materialized materialized({&weight, &bias});
    const auto narrow = static_cast<at::ScalarType>(ctx->saved_data["narrow"].toInt());
    const std::vector<std::int64_t> shape = ctx->saved_data["shape"].toIntVector();
    const double softcap = ctx->saved_data["softcap"].toDouble();
    const Head head{weight.to(narrow), bias, softcap};
    const bool hidden_gradient = ctx->needs_input_grad(0), weight_gradient = ctx->needs_input_grad(1);
    const bool bias_gradient = bias.defined() && bias.requires_grad();
    const std::int64_t c = scored.size(1), all = scored.size(0);
    at::Tensor dscored = hidden_gradient ? at::empty_like(scored) : at::Tensor();
    at::Tensor dweight =
        weight_gradient ? at::zeros({weight.size(0), c}, scored.options().dtype(weight.scalar_type())) : at::Tensor();
    at::Tensor dbias =
        bias_gradient ? at::zeros({bias.size(0)}, scored.options().dtype(bias.scalar_type())) : at::Tensor();
    for (std::int64_t first = 0, chunk = chunk_of(weight); first < all; first += chunk) {
      const std::int64_t n = std::min(chunk, all - first);
      const at::Tensor x = scored.narrow(0, first, n).to(narrow);
      const at::Tensor logits = head.logits(x);
      const at::Tensor factor =
          gradients[0].index_select(0, row.narrow(0, first, n)).to(logits.scalar_type()).unsqueeze(1);
      at::Tensor d = logits.softmax(1).neg_();
      const at::Tensor goal = goals.narrow(0, first, n).unsqueeze(1);
      d.scatter_add_(1, goal, at::ones_like(goal, d.options()));
      d.mul_(factor);
      if (softcap > 0) d.mul_(softcap_slope(logits, softcap));
      if (bias_gradient) dbias.add_(d.sum(0));
      d = d.to(narrow);
      if (hidden_gradient) dscored.narrow(0, first, n).copy_(at::mm(d, head.weight));
      if (weight_gradient) dweight.add_(at::mm(d.t(), x));
    }
    at::Tensor dhidden;
    if (hidden_gradient) {
      dhidden = at::zeros({shape[0] * shape[1], c}, dscored.options());
      dhidden.index_copy_(0, position, dscored);
      dhidden = dhidden.view(shape);
    }
    return {dhidden, dweight, dbias, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor sequence_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                      double softcap, const at::Tensor& bias) {
  TESSERA_CHECK(hidden.dim() == 3 && weight.dim() == 2 && labels.dim() == 2 && hidden.size(1) >= 2,
                "expected hidden [B, T, C] with T >= 2, weight [V, C], labels [B, T]");
  return SequenceLogProbabilities::apply(hidden, weight, bias.defined() ? std::optional(bias) : std::nullopt, labels,
                                         softcap);
}

}  // namespace tessera::nn
