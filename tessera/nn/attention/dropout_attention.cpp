#include <tessera/nn/attention/dropout_attention.h>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/csrc/autograd/custom_function.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <tessera/kernels/cpu/dropout.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/capturing.h>
#include <tessera/nn/device/kernels.h>
#include <tessera/nn/device/random_lines.h>
#include <tessera/nn/parallel_for.h>
#include <tessera/nn/softcap.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Number of weights computed at a time: 16 MB of fp32.
constexpr std::int64_t weights_at_a_time = std::int64_t{4} << 20;

/// A run of queries [begin, end), and the keys [0, keys) that at least one of them attends to.
struct Run {
  std::int64_t begin, end, keys;
};

void for_runs(const AttentionRectangle& a, const std::function<void(const Run&)>& f) {
  const std::int64_t queries = a.q.size(2), keys = a.k.size(2);
  const std::int64_t per_query = std::max<std::int64_t>(1, a.q.size(0) * a.q.size(1) * keys);
  const std::int64_t step = std::max<std::int64_t>(16, weights_at_a_time / per_query);
  for (std::int64_t begin = 0; begin < queries; begin += step) {
    const std::int64_t end = std::min(queries, begin + step);
    f({begin, end, a.causal ? end : keys});
  }
}

/// Multiplies the weights of a run, fp32 [B, heads, queries, keys], by 0 or 1 / (1 - p).
void drop_fp32(const at::Tensor& weights, const AttentionRectangle& a, const Run& run, const WeightDropout& dropout,
               const RectanglePlace& place) {
  const std::int64_t rows = a.q.size(0), heads = a.q.size(1), queries = run.end - run.begin;
  const auto limit = static_cast<std::uint32_t>(std::llround(dropout.p * 4294967295.0));
  const auto scale = static_cast<float>(1 / (1 - dropout.p));
  RandomPlace lines = dropout.place;
  lines.row += place.row;
  lines.token += place.query + run.begin;
  lines.column = 0;
  const std::span<const std::int64_t> keys = place.keys.empty()
                                                 ? std::span<const std::int64_t>()
                                                 : std::span(place.keys).first(static_cast<std::size_t>(run.keys));
  if (const DeviceKernels* device = device_kernels({weights})) {
    const c10::DeviceGuard guard(weights.device());
    const DeviceLines there = device_lines(lines, rows, heads, queries, run.keys, keys, weights.device());
    device->dropout(const_reals(weights), reals(weights), there.lines, limit, scale);
    return;
  }
  float* const begin = weights.data_ptr<float>();
  parallel_for(0, rows * heads * queries, std::max<std::int64_t>(1, 16384 / run.keys), [&](auto first, auto last) {
    for (std::int64_t line = first; line < last; ++line) {
      const std::int64_t query = line % queries, head = line / queries % heads, row = line / queries / heads;
      std::uint64_t key = kernels::mixed_key(lines.key, static_cast<std::uint64_t>(lines.row + row));
      key = kernels::mixed_key(key, static_cast<std::uint64_t>(lines.position(query)));
      key = kernels::mixed_key(key, static_cast<std::uint64_t>(lines.head + head));
      float* const own = begin + line * run.keys;
      for (std::int64_t from = 0; from < run.keys;) {  // consecutive positions in one call
        std::int64_t to = keys.empty() ? run.keys : from + 1;
        const auto position = [&](std::int64_t i) { return keys.empty() ? i : keys[static_cast<std::size_t>(i)]; };
        while (to < run.keys && position(to) == position(to - 1) + 1) ++to;
        kernels::dropout(own + from, own + from, to - from, key, static_cast<std::uint32_t>(position(from)), limit,
                         scale);
        from = to;
      }
    }
  });
}

/// The same for weights in the type of sums, fp32 or fp64, in place.
void drop(const at::Tensor& weights, const AttentionRectangle& a, const Run& run, const WeightDropout& dropout,
          const RectanglePlace& place) {
  if (dropout.p == 0) return;
  if (weights.scalar_type() == at::kFloat && weights.is_contiguous()) return drop_fp32(weights, a, run, dropout, place);
  const at::Tensor factors = at::ones(weights.sizes(), weights.options().dtype(at::kFloat));
  drop_fp32(factors, a, run, dropout, place);
  weights.mul_(factors);
}

/// Scaled and capped q k^T of a run, in the type of sums; not masked.
at::Tensor capped_scores(const AttentionRectangle& a, const Run& run) {
  const auto wide = at::toOpMathType(a.q.scalar_type());
  const at::Tensor q = a.q.narrow(2, run.begin, run.end - run.begin).to(wide), k = a.k.narrow(2, 0, run.keys).to(wide);
  const at::Tensor s = at::matmul(q, k.transpose(2, 3)).mul_(a.scale);
  softcap_(s, a.softcap);
  return s;
}

/// Masks the scores of a run in place and returns them.
const at::Tensor& masked(const at::Tensor& s, const AttentionRectangle& a, const Run& run) {
  if (a.mask.defined()) {
    at::Tensor mask = a.mask;
    if (mask.size(-2) > 1) mask = mask.narrow(-2, run.begin, run.end - run.begin);
    s.add_(mask.narrow(-1, 0, run.keys));
  }
  if (a.causal)
    s.masked_fill_(
        at::ones({run.end - run.begin, run.keys}, s.options().dtype(at::kBool)).tril(run.begin).logical_not(),
        -std::numeric_limits<double>::infinity());
  return s;
}

struct HeldArguments : torch::CustomClassHolder {
  HeldArguments(double scale_, double softcap_, bool causal_, WeightDropout dropout_)
      : scale(scale_), softcap(softcap_), causal(causal_), dropout(std::move(dropout_)) {}
  double scale, softcap;
  bool causal;
  WeightDropout dropout;
};

struct DropoutAttention : torch::autograd::Function<DropoutAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& mask, double scale, double softcap, bool causal,
                            const WeightDropout& dropout) {
    auto [out, log_sum] =
        rectangle_attention({q, k, v, mask.value_or(at::Tensor()), causal, scale, softcap}, dropout, {});
    ctx->save_for_backward({q, k, v, mask.value_or(at::Tensor()), out, log_sum});
    ctx->saved_data["arguments"] =
        c10::IValue::make_capsule(c10::make_intrusive<HeldArguments>(scale, softcap, causal, dropout));
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto held = c10::static_intrusive_pointer_cast<HeldArguments>(ctx->saved_data["arguments"].toCapsule());
    const RectangleGradients d = rectangle_attention_backward(
        gradients[0], {saved[0], saved[1], saved[2], saved[3], held->causal, held->scale, held->softcap}, saved[4],
        saved[5], held->dropout, {});
    return {d.dq, d.dk, d.dv, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> rectangle_attention(const AttentionRectangle& a, const WeightDropout& dropout,
                                                      const RectanglePlace& place) {
  const auto wide = at::toOpMathType(a.q.scalar_type());
  const at::Tensor out = at::empty(a.q.sizes(), a.q.options()), v = a.v.to(wide),
                   log_sum = at::empty({a.q.size(0), a.q.size(1), a.q.size(2)}, a.q.options().dtype(wide));
  for_runs(a, [&](const Run& run) {
    const std::int64_t count = run.end - run.begin;
    const at::Tensor s = masked(capped_scores(a, run), a, run), sums = at::logsumexp(s, {-1}, /*keepdim=*/true);
    const at::Tensor weights = s.sub_(sums).exp_();
    drop(weights, a, run, dropout, place);
    out.narrow(2, run.begin, count).copy_(at::matmul(weights, v.narrow(2, 0, run.keys)));
    log_sum.narrow(2, run.begin, count).copy_(sums.squeeze(-1));
  });
  return {out, log_sum};
}

RectangleGradients rectangle_attention_backward(const at::Tensor& dy, const AttentionRectangle& a,
                                                const at::Tensor& out, const at::Tensor& log_sum,
                                                const WeightDropout& dropout, const RectanglePlace& place) {
  const auto wide = at::toOpMathType(a.q.scalar_type());
  const at::Tensor q = a.q.to(wide), k = a.k.to(wide), v = a.v.to(wide), dout = dy.to(wide);
  const at::Tensor dq = at::empty(q.sizes(), q.options()), dk = at::zeros(k.sizes(), k.options()),
                   dv = at::zeros(v.sizes(), v.options());
  const at::Tensor seen = (dout * out.to(wide)).sum(-1, /*keepdim=*/true);  // sum over keys of w dw, by query
  for_runs(a, [&](const Run& run) {
    const std::int64_t count = run.end - run.begin;
    const auto own = [&](const at::Tensor& x) { return x.narrow(2, run.begin, count); };
    const auto keys = [&](const at::Tensor& x) { return x.narrow(2, 0, run.keys); };
    const at::Tensor capped = capped_scores(a, run);
    const at::Tensor slope = a.softcap > 0 ? softcap_slope(capped, a.softcap) : at::Tensor();
    const at::Tensor weights = masked(capped, a, run).sub_(own(log_sum).unsqueeze(-1)).exp_();
    const at::Tensor dweights = at::matmul(own(dout), keys(v).transpose(2, 3));
    drop(dweights, a, run, dropout, place);
    const at::Tensor kept = dropout.p > 0 ? weights.clone() : weights;
    drop(kept, a, run, dropout, place);
    keys(dv).add_(at::matmul(kept.transpose(2, 3), own(dout)));
    const at::Tensor ds = dweights.sub_(own(seen)).mul_(weights).mul_(a.scale);
    if (slope.defined()) ds.mul_(slope);
    own(dq).copy_(at::matmul(ds, keys(k)));
    keys(dk).add_(at::matmul(ds.transpose(2, 3), own(q)));
  });
  const auto narrow = [&](const at::Tensor& x) { return x.to(a.q.scalar_type()); };
  return {narrow(dq), narrow(dk), narrow(dv)};
}

/// The same with LibTorch operators, for all queries and keys at once.
static at::Tensor captured_attention(const AttentionRectangle& a, const WeightDropout& dropout) {
  const Run all{0, a.q.size(2), a.k.size(2)};
  const auto wide = at::toOpMathType(a.q.scalar_type());
  at::Tensor s = at::matmul(a.q.to(wide), a.k.to(wide).transpose(2, 3)) * a.scale;
  if (a.softcap != 0) s = at::tanh(s / a.softcap) * a.softcap;
  if (a.mask.defined()) s = s + a.mask;
  if (a.causal)
    s = s.masked_fill(at::ones({all.end, all.keys}, at::kBool).tril().logical_not(),
                      -std::numeric_limits<double>::infinity());
  at::Tensor weights = at::softmax(s, -1);
  if (dropout.p > 0)
    weights = weights * captured_draws->kept(dropout.place, {a.q.size(0), a.q.size(1), all.end}, all.keys, dropout.p) *
              (1 / (1 - dropout.p));
  return at::matmul(weights, a.v.to(wide)).to(a.q.scalar_type());
}

at::Tensor dropout_attention(const AttentionRectangle& a, const WeightDropout& dropout) {
  const auto type = libtorch_autocast_type(a.q.device().type());
  const auto cast = [&](const at::Tensor& x) { return type && x.scalar_type() != at::kDouble ? x.to(*type) : x; };
  const c10::impl::ExcludeDispatchKeyGuard as_written(c10::autocast_dispatch_keyset);  // sums in fp32
  if (capturing())
    return captured_attention({cast(a.q), cast(a.k), cast(a.v), a.mask, a.causal, a.scale, a.softcap}, dropout);
  return DropoutAttention::apply(cast(a.q), cast(a.k), cast(a.v),
                                 a.mask.defined() ? std::optional(a.mask) : std::nullopt, a.scale, a.softcap, a.causal,
                                 dropout);
}

}  // namespace tessera::nn
