#include <tessera/nn/attention/flash_attention.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/dispatch.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/parallel_for.h>
#include <tessera/nn/product_watch.h>

#include <algorithm>
#include <limits>

namespace tessera::nn {
namespace {

bool rows_are_dense(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && x.stride(3) == 1;
}

}  // namespace

bool flash_attention_is_ours(const AttentionRectangle& a) {
  return !a.mask.defined() && a.q.size(3) % 16 == 0 && a.q.size(3) > 0 && a.q.size(3) <= 256 && a.q.size(2) > 0 &&
         a.k.size(2) > 0 && (!a.causal || a.q.size(2) == a.k.size(2)) && rows_are_dense(a.q) && rows_are_dense(a.k) &&
         rows_are_dense(a.v) && kernels::isa() != kernels::Isa::baseline;
}

namespace {

/// First element of head h of row b.
template <class T>
T* head_of(T* data, const at::Tensor& x, std::int64_t b, std::int64_t h) {
  return data + b * x.stride(0) + h * x.stride(1);
}

kernels::AttentionHead head_of(const AttentionRectangle& a, std::int64_t b, std::int64_t h) {
  return {.q = head_of(a.q.const_data_ptr<float>(), a.q, b, h),
          .k = head_of(a.k.const_data_ptr<float>(), a.k, b, h),
          .v = head_of(a.v.const_data_ptr<float>(), a.v, b, h),
          .q_stride = a.q.stride(2),
          .k_stride = a.k.stride(2),
          .v_stride = a.v.stride(2),
          .queries = a.q.size(2),
          .keys = a.lengths.empty() ? a.k.size(2) : a.lengths[static_cast<std::size_t>(b)],
          .size = a.q.size(3),
          .scale = static_cast<float>(a.scale),
          .causal = a.causal,
          .window = a.window};
}

/// The same with a mask instead of a window and of lengths.
AttentionRectangle masked(const AttentionRectangle& a) {
  AttentionRectangle b = a;
  b.window = 0;
  b.lengths.clear();
  const std::int64_t n = a.q.size(2), m = a.k.size(2);
  at::Tensor seen;
  if (a.window > 0 && a.window < m) {
    seen = at::ones({n, m}, a.q.options().dtype(at::kBool)).tril().triu(1 - a.window);
    b.causal = false;
  }
  if (!a.lengths.empty())
    seen = at::arange(m, a.q.options().dtype(at::kLong))
               .less(at::tensor(a.lengths, at::kLong).to(a.q.device()).view({-1, 1, 1, 1}));
  if (seen.defined())
    b.mask = at::zeros(seen.sizes(), a.q.options())
                 .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  return b;
}

RectangleGradients torch_backward(const at::Tensor& dy, const AttentionRectangle& given, const at::Tensor& out,
                                  const at::Tensor& log_sums) {
  const AttentionRectangle a = masked(given);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      dy, a.q, a.k, a.v, out, log_sums, /*dropout_p=*/0, a.causal, maybe(a.mask), a.scale);
  return {dq, dk, dv};
}

/// Average number of keys that a query attends to.
double mean_seen(const AttentionRectangle& a) {
  const auto keys = static_cast<double>(a.k.size(2)), window = static_cast<double>(a.window);
  if (a.causal) return window > 0 && window < keys ? window - window * (window - 1) / (2 * keys) : (keys + 1) / 2;
  if (a.lengths.empty()) return keys;
  double sum = 0;
  for (const std::int64_t length : a.lengths) sum += static_cast<double>(length);
  return sum / static_cast<double>(a.lengths.size());
}

void tell(const AttentionRectangle& a, bool backward) {
  if (ProductWatcher* const watcher = product_watcher.load(std::memory_order_acquire)) [[unlikely]]
    watcher->attention(a.q, a.k, a.causal, mean_seen(a), backward);
}

void check(const AttentionRectangle& a) {
  TESSERA_CHECK(a.window == 0 || (a.causal && a.window > 0), "a window of ", a.window, " needs causal attention");
  TESSERA_CHECK(a.lengths.empty() || (!a.causal && static_cast<std::int64_t>(a.lengths.size()) == a.k.size(0)),
                a.lengths.size(), " lengths for ", a.k.size(0),
                " rows; there must be one length per row, and attention must not be causal");
  for (const std::int64_t length : a.lengths)
    TESSERA_CHECK(length >= 1 && length <= a.k.size(2), "a length of ", length, " for ", a.k.size(2), " keys");
}

/// Gradients of keys that no query attends to are zero, and no kernel writes them.
void zero_unseen(const AttentionRectangle& a, const at::Tensor& dk, const at::Tensor& dv) {
  for (std::size_t row = 0; row < a.lengths.size(); ++row)
    for (const at::Tensor* x : {&dk, &dv})
      x->select(0, static_cast<std::int64_t>(row)).narrow(1, a.lengths[row], x->size(2) - a.lengths[row]).zero_();
}

/// An empty tensor [B, heads, n, D] that is stored as [B, n, heads, D].
at::Tensor by_token(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> flash_attention(const AttentionRectangle& a) {
  check(a);
  if (!flash_attention_is_ours(a)) {
    const AttentionRectangle b = masked(a);
    auto [out, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(b.q, b.k, b.v, /*dropout_p=*/0, b.causal,
                                                                           maybe(b.mask), b.scale);
    return {out, log_sums};
  }
  tell(a, /*backward=*/false);
  const std::int64_t heads = a.q.size(1), all = a.q.size(0) * heads, n = a.q.size(2),
                     tiles = (n + kernels::attention_tile - 1) / kernels::attention_tile;
  const at::Tensor out = by_token(a.q), log_sums = at::empty({a.q.size(0), heads, n}, a.q.options());
  // With fewer heads than threads can use, queries are also divided; this does not change results.
  const std::int64_t ranges =
                         std::clamp<std::int64_t>(4 * at::get_num_threads() / std::max<std::int64_t>(all, 1), 1, tiles),
                     each = (tiles + ranges - 1) / ranges * kernels::attention_tile;
  auto* const results = out.mutable_data_ptr<float>();
  auto* const sums = log_sums.mutable_data_ptr<float>();
  parallel_for(0, all * ranges, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor scratch = at::empty({kernels::attention_scratch(a.k.size(2), a.q.size(3))}, a.q.options());
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t head = i / ranges, first = i % ranges * each, past = std::min(n, first + each);
      if (first >= past) continue;
      kernels::attention(head_of(a, head / heads, head % heads), first, past,
                         head_of(results, out, head / heads, head % heads), out.stride(2), sums + head * n,
                         scratch.mutable_data_ptr<float>());
    }
  });
  return {out, log_sums};
}

void flash_attention_backward(const at::Tensor& dy, const AttentionRectangle& a, const at::Tensor& out,
                              const at::Tensor& log_sums, const RectangleGradients& places) {
  const auto& [dq, dk, dv] = places;
  const bool dense = rows_are_dense(dq) && rows_are_dense(dk) && rows_are_dense(dv);
  if (!flash_attention_is_ours(a) || !dense || !rows_are_dense(out) || dy.scalar_type() != at::kFloat) {
    const auto [gq, gk, gv] = torch_backward(dy, a, out, log_sums);
    dq.copy_(gq), dk.copy_(gk), dv.copy_(gv);
    return;
  }
  tell(a, /*backward=*/true);
  zero_unseen(a, dk, dv);
  const at::Tensor dout = dy.stride(3) == 1 ? dy : dy.contiguous(), sums = log_sums.contiguous();
  const std::int64_t heads = a.q.size(1), n = a.q.size(2);
  const float *result = out.const_data_ptr<float>(), *gradient = dout.const_data_ptr<float>(),
              *sum = sums.const_data_ptr<float>();
  float *to_q = dq.mutable_data_ptr<float>(), *to_k = dk.mutable_data_ptr<float>(),
        *to_v = dv.mutable_data_ptr<float>();
  parallel_for(0, a.q.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor scratch = at::empty({kernels::attention_scratch(a.k.size(2), a.q.size(3))}, a.q.options());
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / heads, h = i % heads;
      kernels::attention_backward(head_of(a, b, h),
                                  {.out = head_of(result, out, b, h),
                                   .dout = head_of(gradient, dout, b, h),
                                   .out_stride = out.stride(2),
                                   .dout_stride = dout.stride(2),
                                   .log_sums = sum + i * n,
                                   .dq = head_of(to_q, dq, b, h),
                                   .dk = head_of(to_k, dk, b, h),
                                   .dv = head_of(to_v, dv, b, h),
                                   .dq_stride = dq.stride(2),
                                   .dk_stride = dk.stride(2),
                                   .dv_stride = dv.stride(2)},
                                  scratch.mutable_data_ptr<float>());
    }
  });
}

RectangleGradients flash_attention_backward(const at::Tensor& dy, const AttentionRectangle& a, const at::Tensor& out,
                                            const at::Tensor& log_sums) {
  if (!flash_attention_is_ours(a)) return torch_backward(dy, a, out, log_sums);
  const RectangleGradients places = {by_token(a.q), by_token(a.k), by_token(a.v)};
  flash_attention_backward(dy, a, out, log_sums, places);
  return places;
}

}  // namespace tessera::nn
