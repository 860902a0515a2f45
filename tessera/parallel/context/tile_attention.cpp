#include <tessera/parallel/context/tile_attention.h>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <tessera/nn/attention/flash_attention.h>

#include <limits>

namespace tessera::parallel {
namespace {

using layout::Tile;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Tokens [begin, begin + count) of a tile's rows of x [B, t, ...].
at::Tensor part(const at::Tensor& x, const Tile& tile, std::int64_t begin, std::int64_t count) {
  const at::Tensor rows = tile.row == Tile::every_row ? x : x.narrow(0, tile.row, 1);
  return rows.narrow(1, begin, count);
}
at::Tensor queries_of(const at::Tensor& x, const Tile& tile) { return part(x, tile, tile.query, tile.queries); }
at::Tensor keys_of(const at::Tensor& x, const Tile& tile) { return part(x, tile, tile.key, tile.keys); }
/// The same for x [B, heads, t].
at::Tensor log_sums_of(const at::Tensor& x, const Tile& tile) {
  return queries_of(x.transpose(1, 2), tile).transpose(1, 2);
}

/// [B, t, key heads, D] -> [B, heads, t, D], each key head repeated for its group of query heads; no copy when their
/// numbers are equal.
at::Tensor for_each_query_head(const at::Tensor& k, std::int64_t heads) {
  const std::int64_t own = k.size(2);
  if (own == heads) return k.transpose(1, 2);
  return k.unsqueeze(3)
      .expand({k.size(0), k.size(1), own, heads / own, k.size(3)})
      .reshape({k.size(0), k.size(1), heads, k.size(3)})
      .transpose(1, 2);
}

/// d [B, heads, t, D] -> [B, t, key heads, D], summed over groups of query heads.
at::Tensor over_groups(const at::Tensor& d, const at::Tensor& sum) {
  const at::Tensor by_token = d.transpose(1, 2);
  const std::int64_t own = sum.size(2);
  if (own == by_token.size(2)) return by_token;
  const at::Tensor wide = by_token.to(sum.scalar_type());
  return wide.reshape({wide.size(0), wide.size(1), own, wide.size(2) / own, wide.size(3)}).sum(3);
}

/// Adds d [.., count, ..] to tokens [begin, begin + count) of a tile's rows of the sum.
void add(GradientSum& sum, const Tile& tile, std::int64_t begin, std::int64_t count, const at::Tensor& d) {
  const at::Tensor place = part(sum.total, tile, begin, count);
  if (sum.begun) {
    place.add_(d);
    return;
  }
  if (place.numel() < sum.total.numel()) sum.total.zero_();
  place.copy_(d);
  sum.begun = true;
}

/// 0 where a query attends to a key, -infinity elsewhere: [queries, keys]; undefined: no mask, or causal.
at::Tensor mask_of(const Tile& tile, std::int64_t window, const at::TensorOptions& options) {
  if (tile.kind != Tile::Kind::band) return {};
  const at::Tensor seen =
      at::ones({tile.queries, tile.keys}, options.dtype(at::kBool)).tril(tile.ahead).triu(tile.ahead - window + 1);
  return at::zeros({tile.queries, tile.keys}, options).masked_fill_(seen.logical_not(), -infinity);
}

/// Whether the flash kernel, which is for the CPU only, cannot be used.
bool in_runs(const TileOptions& options, const at::Tensor& q) {
  return options.dropout.p > 0 || options.softcap > 0 || !q.is_cpu();
}

nn::AttentionRectangle rectangle(const at::Tensor& q, const KeyBlock& block, const Tile& tile,
                                 const TileOptions& options, std::int64_t heads) {
  return {.q = queries_of(q, tile).transpose(1, 2),
          .k = for_each_query_head(keys_of(block.k, tile), heads),
          .v = for_each_query_head(keys_of(block.v, tile), heads),
          .mask = mask_of(tile, options.window, q.options()),
          .causal = tile.kind == Tile::Kind::causal,
          .scale = options.scale,
          .softcap = options.softcap};
}

nn::RectanglePlace place_of(const Tile& tile, const KeyBlock& block) {
  const auto keys = block.positions.subspan(static_cast<std::size_t>(tile.key), static_cast<std::size_t>(tile.keys));
  return {.row = tile.row == Tile::every_row ? 0 : tile.row, .query = tile.query, .keys = {keys.begin(), keys.end()}};
}

bool covers(const Tile& tile, const at::Tensor& q) {
  return tile.row == Tile::every_row && tile.query == 0 && tile.queries == q.size(1);
}

}  // namespace

void add_block(PartialAttention& sum, const at::Tensor& q, const KeyBlock& block, const TileOptions& options) {
  const std::int64_t heads = q.size(2);
  const auto wide = at::toOpMathType(q.scalar_type());
  for (const Tile& tile : block.tiles) {
    const nn::AttentionRectangle a = rectangle(q, block, tile, options, heads);
    const auto [result, log_sum] = in_runs(options, q)
                                       ? nn::rectangle_attention(a, options.dropout, place_of(tile, block))
                                       : nn::flash_attention(a);
    const at::Tensor out = result.transpose(1, 2).to(wide);  // [B, queries, heads, D]
    if (!sum.out.defined() && covers(tile, q)) {
      sum = {out, log_sum};
      continue;
    }
    if (!sum.out.defined()) {
      sum.out = at::zeros(q.sizes(), q.options().dtype(wide));
      sum.log_sum = at::full({q.size(0), heads, q.size(1)}, -infinity, sum.out.options());
    }
    const at::Tensor old_sum = log_sums_of(sum.log_sum, tile), both = at::logaddexp(old_sum, log_sum);
    const auto weight = [&](const at::Tensor& part) { return (part - both).exp_().transpose(1, 2).unsqueeze(3); };
    queries_of(sum.out, tile).mul_(weight(old_sum)).addcmul_(out, weight(log_sum));
    old_sum.copy_(both);
  }
}

const at::Tensor& GradientSum::value() {
  if (!begun) total.zero_();
  begun = true;
  return total;
}

void add_block_gradients(GradientSum& dq, GradientSum& dk, GradientSum& dv, const AttentionResult& result,
                         const KeyBlock& block, const TileOptions& options) {
  const std::int64_t heads = result.q.size(2);
  for (const Tile& tile : block.tiles) {
    const nn::AttentionRectangle a = rectangle(result.q, block, tile, options, heads);
    const at::Tensor dy = queries_of(result.gradient, tile).transpose(1, 2),
                     out = queries_of(result.out, tile).transpose(1, 2), log_sum = log_sums_of(result.log_sum, tile);
    // With the log-sum-exp and the output of *all* keys, the kernel's gradients are this block's part of the whole.
    const auto [gq, gk, gv] =
        in_runs(options, result.q)
            ? nn::rectangle_attention_backward(dy, a, out, log_sum, options.dropout, place_of(tile, block))
            : nn::flash_attention_backward(dy, a, out, log_sum);
    add(dq, tile, tile.query, tile.queries, gq.transpose(1, 2));
    add(dk, tile, tile.key, tile.keys, over_groups(gk, dk.total));
    add(dv, tile, tile.key, tile.keys, over_groups(gv, dv.total));
  }
}

}  // namespace tessera::parallel
