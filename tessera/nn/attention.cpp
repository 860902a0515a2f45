#include <tessera/nn/attention.h>

#include <ATen/OpMathType.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include <tessera/base/error.h>
#include <tessera/nn/attention/attention_pieces.h>
#include <tessera/nn/attention/document_attention.h>
#include <tessera/nn/attention/dropout_attention.h>
#include <tessera/nn/attention/flash_attention.h>
#include <tessera/nn/device/send.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/softcap.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// [B, T, key heads, D] -> [B, T, heads, D], each key head repeated for its group of query heads; no copy when their
/// numbers are equal.
at::Tensor for_each_query_head(const at::Tensor& k, std::int64_t heads) {
  const std::int64_t own = k.size(2);
  if (own == heads) return k;
  return k.unsqueeze(3)
      .expand({k.size(0), k.size(1), own, heads / own, k.size(3)})
      .reshape({k.size(0), k.size(1), heads, k.size(3)});
}

/// The sum over each group of query heads, the transpose of for_each_query_head: [B, T, heads, D] -> [.., key heads,
/// D].
at::Tensor summed_over_groups(const at::Tensor& dk, std::int64_t own) {
  if (dk.size(2) == own) return dk;
  return dk.view({dk.size(0), dk.size(1), own, dk.size(2) / own, dk.size(3)}).sum(3);
}

/// 0 where the query of row i (position first + i) attends to the key of column j (position begin + j), else -infinity.
at::Tensor window_mask(const Piece& piece, std::int64_t window, const at::TensorOptions& options) {
  const std::int64_t queries = piece.end - piece.first, keys = piece.end - piece.begin,
                     shift = piece.first - piece.begin;
  const at::Tensor seen = at::ones({queries, keys}, options.dtype(at::kBool)).tril(shift).triu(shift - window + 1);
  return at::zeros({queries, keys}, options).masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

/// The part of x [B, T, heads, D] in row `row`, tokens [begin, end), as [1, heads, tokens, D].
at::Tensor part(const at::Tensor& x, std::int64_t row, std::int64_t begin, std::int64_t end) {
  return x.narrow(0, row, 1).narrow(1, begin, end - begin).transpose(1, 2);
}

/// The parameters that turn q k^T into scores.
struct ScoreForm {
  double scale, softcap;
};

/// The part of x [B, heads, T, D] in row `row`, tokens [begin, end), as [1, heads, tokens, D].
at::Tensor tokens_of(const at::Tensor& x, std::int64_t row, std::int64_t begin, std::int64_t end) {
  return x.narrow(0, row, 1).narrow(2, begin, end - begin);
}

AttentionRectangle rectangle_of(const Piece& p, const AttentionRectangle& whole, std::int64_t window) {
  AttentionRectangle piece = whole;
  piece.q = tokens_of(whole.q, p.row, p.first, p.end);
  piece.k = tokens_of(whole.k, p.row, p.begin, p.end);
  piece.v = tokens_of(whole.v, p.row, p.begin, p.end);
  if (p.masked) piece.mask = window_mask(p, window, whole.q.options());
  piece.causal = !p.masked;
  return piece;
}

/// Attention of one rectangle of queries and keys [B, heads, n or m, D]: by a flash kernel or, if scores are capped
/// (which flash kernels do not support), in runs of queries.
std::pair<at::Tensor, at::Tensor> piece_attention(const AttentionRectangle& a) {
  if (a.softcap > 0) return rectangle_attention(a, {}, {});
  return flash_attention(a);
}
RectangleGradients piece_gradients(const at::Tensor& dy, const AttentionRectangle& a, const at::Tensor& out,
                                   const at::Tensor& log_sum) {
  if (a.softcap > 0) return rectangle_attention_backward(dy, a, out, log_sum, {}, {});
  return flash_attention_backward(dy, a, out, log_sum);
}

/// Queries, keys and values as one rectangle, and its pieces, chosen for the kernel that computes them.
struct Cut {
  std::vector<Piece> pieces;  ///< empty: the whole batch is one piece
  AttentionRectangle whole;   ///< all rows together
};
Cut cut_of(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, const DocumentStarts& documents,
           const ScoreForm& form, std::int64_t window) {
  const std::int64_t length = q.size(1);
  Cut cut{.pieces = {},
          .whole = {.q = q.transpose(1, 2),
                    .k = keys.transpose(1, 2),
                    .v = values.transpose(1, 2),
                    .causal = true,
                    .scale = form.scale,
                    .softcap = form.softcap,
                    .window = window < length ? window : 0}};
  if (form.softcap > 0 || !flash_attention_is_ours(cut.whole)) cut.whole.window = 0;
  cut.pieces = attention_pieces(documents, q.size(0), length, cut.whole.window > 0 ? 0 : window);
  return cut;
}

/// Attention in pieces. One document per row and no window is a single call over the whole batch.
struct PieceAttention : torch::autograd::Function<PieceAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const DocumentStarts& documents, ScoreForm form, std::int64_t window) {
    const std::int64_t b = q.size(0), t = q.size(1), heads = q.size(2), d = q.size(3);
    const at::Tensor keys = for_each_query_head(k, heads), values = for_each_query_head(v, heads);
    const auto [pieces, whole] = cut_of(q, keys, values, documents, form, window);
    at::Tensor out;                    // [B, T, heads, D]
    std::vector<at::Tensor> log_sums;  // per piece
    if (pieces.empty()) {
      auto [result, log_sum] = piece_attention(whole);
      out = result.transpose(1, 2);
      log_sums.push_back(log_sum);
    } else {
      out = at::empty({b, t, heads, d}, q.options());
      for (const Piece& p : pieces) {
        auto [result, log_sum] = piece_attention(rectangle_of(p, whole, window));
        part(out, p.row, p.first, p.end).copy_(result);
        log_sums.push_back(log_sum);
      }
    }
    std::vector<at::Tensor> saved = {q, k, v, out};
    saved.insert(saved.end(), log_sums.begin(), log_sums.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["documents"] = documents;
    ctx->saved_data["scale"] = form.scale;
    ctx->saved_data["softcap"] = form.softcap;
    ctx->saved_data["window"] = window;
    return out.reshape({b, t, heads * d});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
    const std::int64_t b = q.size(0), t = q.size(1), heads = q.size(2), d = q.size(3);
    const ScoreForm form{ctx->saved_data["scale"].toDouble(), ctx->saved_data["softcap"].toDouble()};
    const std::int64_t window = ctx->saved_data["window"].toInt();
    const at::Tensor keys = for_each_query_head(k, heads), values = for_each_query_head(v, heads);
    const at::Tensor dy = gradients[0].contiguous().view({b, t, heads, d});
    const auto [pieces, whole] = cut_of(q, keys, values, ctx->saved_data["documents"].toIntVector(), form, window);
    at::Tensor dq, dk, dv;  // [B, T, heads, D]
    if (pieces.empty()) {
      const auto [gq, gk, gv] = piece_gradients(dy.transpose(1, 2), whole, out.transpose(1, 2), saved[4]);
      dq = gq.transpose(1, 2).contiguous(), dk = gk.transpose(1, 2).contiguous(), dv = gv.transpose(1, 2).contiguous();
    } else {
      dq = at::empty({b, t, heads, d}, q.options());
      dk = at::zeros({b, t, heads, d}, q.options());  // pieces of a window overlap in their keys
      dv = at::zeros({b, t, heads, d}, q.options());
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Piece& p = pieces[i];
        const auto [gq, gk, gv] = piece_gradients(part(dy, p.row, p.first, p.end), rectangle_of(p, whole, window),
                                                  part(out, p.row, p.first, p.end), saved[4 + i]);
        part(dq, p.row, p.first, p.end).copy_(gq);
        part(dk, p.row, p.begin, p.end).add_(gk);
        part(dv, p.row, p.begin, p.end).add_(gv);
      }
    }
    return {
        dq,          summed_over_groups(dk, k.size(2)), summed_over_groups(dv, v.size(2)), at::Tensor(), at::Tensor(),
        at::Tensor()};
  }
};

/// Like PieceAttention for GPT-2's packed tensor: differentiating through its views would cost three zero-filled
/// gradients of qkv's size and their sum; here each part of the gradient is written directly into its place.
struct PackedFlashAttention : torch::autograd::Function<PackedFlashAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, std::int64_t heads, double scale) {
    const std::int64_t b = qkv.size(0), t = qkv.size(1), c = qkv.size(2) / 3;
    const at::Tensor packed = qkv.contiguous(),
                     parts = packed.view({b, t, 3, heads, c / heads}).permute({2, 0, 3, 1, 4});
    auto [out, log_sum] =
        flash_attention({.q = parts[0], .k = parts[1], .v = parts[2], .causal = true, .scale = scale});
    ctx->save_for_backward({packed, out, log_sum});  // out [B, heads, T, D] is stored as [B, T, heads, D]
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["scale"] = scale;
    return out.transpose(1, 2).reshape({b, t, c});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const std::int64_t b = qkv.size(0), t = qkv.size(1), heads = ctx->saved_data["heads"].toInt(),
                       d = qkv.size(2) / 3 / heads;
    const at::Tensor parts = qkv.view({b, t, 3, heads, d}).permute({2, 0, 3, 1, 4});
    const at::Tensor dy = gradients[0].contiguous().view({b, t, heads, d}).transpose(1, 2);
    const at::Tensor dqkv = at::empty(qkv.sizes(), qkv.options()),
                     places = dqkv.view({b, t, 3, heads, d}).permute({2, 0, 3, 1, 4});
    flash_attention_backward(
        dy, {.q = parts[0], .k = parts[1], .v = parts[2], .causal = true, .scale = ctx->saved_data["scale"].toDouble()},
        saved[1], saved[2], {places[0], places[1], places[2]});
    return {dqkv, at::Tensor(), at::Tensor()};
  }
};

/// True where the query token attends to the key token: bool [B, 1, T, T], computed on the device.
at::Tensor seen_tokens(const DocumentStarts& documents, std::int64_t b, std::int64_t t, std::int64_t window,
                       const at::Device& device) {
  at::Tensor seen = at::ones({t, t}, at::TensorOptions(at::kBool).device(device)).tril();
  if (window > 0) seen = seen.triu(1 - window);
  seen = seen.expand({b, 1, t, t});
  if (documents.empty()) return seen;
  const at::Tensor marks = at::zeros({b * t}, at::kInt);
  auto* mark = marks.mutable_data_ptr<std::int32_t>();
  for (const std::int64_t start : documents) mark[start] = 1;
  // The number of each token's document.
  const at::Tensor number = send(marks.cumsum(0, at::kInt), device).view({b, 1, t});
  return seen.logical_and(number.unsqueeze(3) == number.unsqueeze(2));
}

/// 0 where `seen`, else -infinity.
at::Tensor additive(const at::Tensor& seen, const at::TensorOptions& options) {
  return at::zeros(seen.sizes(), options.dtype(at::toOpMathType(c10::typeMetaToScalarType(options.dtype()))))
      .masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DocumentStarts& documents,
                     const AttentionOptions& options) {
  TESSERA_CHECK(q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() && q.size(2) % k.size(2) == 0,
                "expected q [B, T, heads, D] and k, v [B, T, key heads, D] with key heads dividing heads");
  const std::int64_t b = q.size(0), t = q.size(1), heads = q.size(2), d = q.size(3);
  check_documents(documents, b, t);
  if (options.dropout == 0 && fusable({q, k, v}) && q.numel() > 0)
    return PieceAttention::apply(q, k, v, documents, ScoreForm{options.scale, options.softcap}, options.window);
  const bool plain = documents.empty() && (options.window == 0 || options.window >= t);
  if (!plain && options.dropout == 0 && options.softcap == 0 && document_attention_takes(q, k, v, documents))
    return document_attention(q, k, v, documents, options.scale, options.window);
  if (plain && options.dropout == 0 && options.softcap == 0) {
    if (const auto out = grouped_attention(q, k, v, options.scale)) return *out;
  }
  const auto mask = plain ? std::nullopt : std::optional(seen_tokens(documents, b, t, options.window, q.device()));
  const auto by_head = [&](const at::Tensor& x) { return for_each_query_head(x, heads).transpose(1, 2); };
  if (options.dropout > 0 || options.softcap > 0) {
    const at::Tensor out =
        dropout_attention({q.transpose(1, 2), by_head(k), by_head(v),
                           mask ? additive(*mask, q.options()) : at::Tensor(), plain, options.scale, options.softcap},
                          {options.dropout, options.random});
    return out.transpose(1, 2).reshape({b, t, heads * d});
  }
  const at::Tensor out = at::scaled_dot_product_attention(q.transpose(1, 2), by_head(k), by_head(v), mask,
                                                          /*dropout_p=*/0, /*is_causal=*/plain, options.scale);
  return out.transpose(1, 2).reshape({b, t, heads * d});
}

at::Tensor packed_attention(const at::Tensor& qkv, std::int64_t heads, const DocumentStarts& documents,
                            const AttentionOptions& options) {
  if (documents.empty() && options.window == 0 && options.dropout == 0 && options.softcap == 0 && fusable({qkv}) &&
      qkv.numel() > 0)
    return PackedFlashAttention::apply(qkv, heads, options.scale);
  const std::int64_t b = qkv.size(0), t = qkv.size(1), c = qkv.size(2) / 3;
  // Not three select() calls: the backward of unbind() writes the three gradients into one tensor, instead of adding
  // three that are zero elsewhere.
  const std::vector<at::Tensor> parts = qkv.view({b, t, 3, heads, c / heads}).unbind(2);
  return attention(parts[0], parts[1], parts[2], documents, options);
}

at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const AttentionOptions& options) {
  const std::int64_t b = q.size(0), t = q.size(1), heads = q.size(2), d = q.size(3), own = keys.size(1),
                     all = keys.size(2), past = all - t;
  // One query per head: its group of query heads forms the rows of one small product, so keys are read once.
  if (t == 1) {
    const std::int64_t seen = options.window > 0 ? std::min(options.window, all) : all;
    const at::Tensor k = keys.narrow(2, all - seen, seen), v = values.narrow(2, all - seen, seen);
    const at::Tensor grouped = q.view({b, own, heads / own, d});
    const at::Tensor scores = softcap(at::matmul(grouped, k.transpose(2, 3)) * options.scale, options.softcap);
    const at::Tensor weights = at::softmax(scores, -1);
    return at::matmul(weights, v).view({b, 1, heads * d});
  }
  const auto spread = [&](const at::Tensor& x) { return own == heads ? x : x.repeat_interleave(heads / own, 1); };
  at::Tensor mask = at::ones({t, all}, q.options().dtype(at::kBool)).tril(past);  // query i: keys 0 .. past + i
  if (options.window > 0) mask = mask.triu(past - options.window + 1);
  if (options.softcap > 0) {
    const auto [out, log_sum] = rectangle_attention({.q = q.transpose(1, 2),
                                                     .k = spread(keys),
                                                     .v = spread(values),
                                                     .mask = additive(mask, q.options()),
                                                     .scale = options.scale,
                                                     .softcap = options.softcap},
                                                    {}, {});
    return out.transpose(1, 2).reshape({b, t, heads * d});
  }
  const at::Tensor out = at::scaled_dot_product_attention(q.transpose(1, 2), spread(keys), spread(values), mask,
                                                          /*dropout=*/0.0, /*is_causal=*/false, options.scale);
  return out.transpose(1, 2).reshape({b, t, heads * d});
}

}  // namespace tessera::nn
