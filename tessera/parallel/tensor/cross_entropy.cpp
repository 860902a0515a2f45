// The head and its loss with a vocabulary cut over ranks: no rank ever has all logits. Per chunk of tokens three
// numbers per token are exchanged: the maximum logit, the sum of the exponentials, the target's logit (Megatron-LM,
// megatron/core/tensor_parallel/cross_entropy.py). Label smoothing adds a fourth, the sum of the logits over the whole
// vocabulary, so that the result does not depend on the number of ranks.

#include <tessera/parallel/tensor/tensor_shard.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/linear_cross_entropy.h>
#include <tessera/nn/materialized.h>
#include <tessera/nn/softcap.h>

#include <algorithm>

namespace tessera::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// out = a b, or out += a b; a and b are first rounded to `half`, if set.
void times(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, std::optional<at::ScalarType> half,
           bool accumulate) {
  if (half)
    nn::multiply_half(out, a.to(*half), b.to(*half), accumulate);
  else if (out.scalar_type() == at::kFloat && out.device().is_cpu())
    nn::multiply(out, a, b, accumulate);
  else if (accumulate)
    out.addmm_(a, b);
  else
    at::mm_out(const_cast<at::Tensor&>(out), a, b);
}

/// One rank's part of the vocabulary.
struct Vocabulary : torch::CustomClassHolder {
  Vocabulary(comm::Group group_, std::int64_t begin_, std::int64_t end_, std::int64_t all_)
      : group(std::move(group_)), begin(begin_), end(end_), all(all_) {}
  comm::Group group;
  std::int64_t begin, end, all;
};

struct CutCrossEntropy : torch::autograd::Function<CutCrossEntropy> {
  /// hidden [n, C], targets int64 [n] of the whole vocabulary or ignored_label; bias whole, or undefined. Also computes
  /// the gradients; the bias's is whole on every rank.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& head_bias, const at::Tensor& targets, double scale,
                            const nn::LossOptions& form, bool hidden_gradient, bool weight_gradient, bool bias_gradient,
                            c10::intrusive_ptr<Vocabulary> vocabulary) {
    const double smoothing = form.label_smoothing;
    const at::Tensor bias = head_bias.value_or(at::Tensor());
    const nn::Materialized materialized({&hidden, &weight, &bias});
    const comm::Tag tag("cross-entropy");
    const auto half = nn::autocast_type(at::kCPU);
    const std::int64_t n = hidden.size(0), c = hidden.size(1), own = vocabulary->end - vocabulary->begin;
    const std::int64_t chunk = std::min(n, std::max<std::int64_t>(c, 256));
    const auto options = hidden.options();
    const bool gradient = hidden_gradient || weight_gradient || bias_gradient;
    at::Tensor dx, dweight, dbias;
    if (hidden_gradient) dx = at::empty({n, c}, options);
    if (weight_gradient) dweight = at::empty({own, c}, options);
    if (bias_gradient) dbias = at::zeros({vocabulary->all}, options);
    const at::Tensor buffer = at::empty({chunk, own}, options);
    double total = 0;
    for (std::int64_t first = 0; first < n; first += chunk) {
      const std::int64_t rows = std::min(chunk, n - first);
      const at::Tensor part = hidden.narrow(0, first, rows), goals = targets.narrow(0, first, rows);
      const at::Tensor logits = buffer.narrow(0, 0, rows);  // [rows, own]
      times(logits, part, weight.t(), half, false);
      if (bias.defined()) logits.add_(bias.narrow(0, vocabulary->begin, own));
      nn::softcap_(logits, form.softcap);
      const at::Tensor slope = form.softcap > 0 && gradient ? nn::softcap_slope(logits, form.softcap) : at::Tensor();
      const at::Tensor greatest = logits.amax(1);  // [rows]
      vocabulary->group.all_reduce(greatest, comm::Reduction::max).wait();
      logits.sub_(greatest.unsqueeze(1));
      const at::Tensor scored = goals.ne(nn::ignored_label);
      const at::Tensor elsewhere = goals.lt(vocabulary->begin).logical_or_(goals.ge(vocabulary->end));
      const at::Tensor places = (goals - vocabulary->begin).masked_fill_(elsewhere, 0).unsqueeze(1);  // [rows, 1]
      const at::Tensor sums = at::empty({smoothing > 0 ? 3 : 2, rows}, options);
      sums.select(0, 1).copy_(logits.gather(1, places).squeeze(1).masked_fill_(elsewhere, 0));
      if (smoothing > 0) sums.select(0, 2).copy_(logits.sum(1));
      logits.exp_();
      sums.select(0, 0).copy_(logits.sum(1));
      vocabulary->group.all_reduce(sums).wait();
      const at::Tensor wide = sums.to(at::kDouble);
      at::Tensor losses = wide.select(0, 0).log() - wide.select(0, 1);  // [rows]
      if (smoothing > 0)
        losses += smoothing * (wide.select(0, 1) - wide.select(0, 2) / static_cast<double>(vocabulary->all));
      total += losses.masked_select(scored).sum().item<double>();
      if (!gradient) continue;
      // softmax - [j == t] + smoothing ([j == t] - 1 / V), all times scale; 0 in rows that are not scored.
      logits.mul_((scale / sums.select(0, 0)).unsqueeze(1));
      logits.scatter_add_(
          1, places, at::full({rows, 1}, (smoothing - 1) * scale, options).masked_fill_(elsewhere.unsqueeze(1), 0));
      if (smoothing > 0) logits.sub_(smoothing * scale / static_cast<double>(vocabulary->all));
      logits.masked_fill_(scored.logical_not().unsqueeze(1), 0);
      if (slope.defined()) logits.mul_(slope);
      if (bias_gradient) dbias.narrow(0, vocabulary->begin, own).add_(logits.sum(0));
      if (hidden_gradient) times(dx.narrow(0, first, rows), logits, weight, half, false);
      if (weight_gradient) times(dweight, logits.t(), part, half, first > 0);
    }
    if (bias_gradient) vocabulary->group.all_reduce(dbias).wait();  // each rank has computed its own words' gradients
    ctx->saved_data["gradients"] =
        std::vector<at::Tensor>{dx.defined() ? dx : at::empty({0}), dweight.defined() ? dweight : at::empty({0}),
                                dbias.defined() ? dbias : at::empty({0})};
    return at::scalar_tensor(total * scale, options);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto place = ctx->saved_data.find("gradients");
    TESSERA_CHECK(
        place != ctx->saved_data.end(),
        "linear_cross_entropy: a second backward is not possible, because the first one released the gradients");
    auto formed = place->second.toTensorVector();
    ctx->saved_data.erase(place);
    const double factor = gradients[0].item<double>();
    for (at::Tensor& g : formed) {
      if (g.numel() == 0)
        g = at::Tensor();
      else if (factor != 1)
        g.mul_(factor);
    }
    return {formed[0],    formed[1],    formed[2],    at::Tensor(), at::Tensor(),
            at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor TensorShard::linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                             const at::Tensor& labels, double scale, const nn::LossOptions& options,
                                             const at::Tensor& bias) const {
  const c10::impl::ExcludeDispatchKeyGuard asked(nn::cut_key);
  TESSERA_CHECK(part().dim == 0 && part().ranges.size() == 1, name_, ": a head must be cut by rows of its vocabulary");
  const at::Tensor whole = copy_to_tensor_parallel(hidden, group_, between()).x;  // [B, T, C]
  forget_entered();                                                               // the head is the last layer
  const std::int64_t b = labels.size(0), t = labels.size(1), c = whole.size(2);
  TESSERA_CHECK(whole.size(0) == b && whole.size(1) == t, "hidden states ", c10::str(whole.sizes()), " and labels ",
                c10::str(labels.sizes()));
  at::Tensor targets = labels;
  if (options.place == nn::LabelPlace::next) {
    targets = at::full({b, t}, nn::ignored_label, labels.options());
    if (t > 1) targets.narrow(1, 0, t - 1).copy_(labels.narrow(1, 1, t - 1));
  }
  const at::Tensor wrong =
      targets.ne(nn::ignored_label).logical_and_(targets.lt(0).logical_or_(targets.ge(part().whole[0])));
  TESSERA_CHECK(!wrong.any().item<bool>(), "a label is outside the vocabulary of ", part().whole[0], " and is not ",
                nn::ignored_label);
  const bool gradient = at::GradMode::is_enabled();
  const auto [begin, end] = part().ranges.front();
  const at::Tensor loss =
      CutCrossEntropy::apply(whole.reshape({-1, c}), weight, bias.defined() ? std::optional(bias) : std::nullopt,
                             targets.reshape({-1}), scale, options, gradient && whole.requires_grad(),
                             gradient && weight.requires_grad(), gradient && bias.defined() && bias.requires_grad(),
                             c10::make_intrusive<Vocabulary>(group_, begin, end, part().whole[0]));
  return loss;
}

}  // namespace tessera::parallel
