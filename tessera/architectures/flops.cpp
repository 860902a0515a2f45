#include <tessera/architectures/flops.h>

#include <algorithm>
#include <vector>

namespace tessera::architectures {

namespace schedule = layout::schedule;

namespace {

double real(std::int64_t n) { return static_cast<double>(n); }

/// Computed from sizes instead of tensors(): searches call it often, and a layer may have hundreds of experts.
LayerMatrices layer_matrices(const ModelSpec& m, bool sparse, bool linear) {
  const double c = real(m.hidden), q = real(m.query_width()), k = real(m.key_width());
  double attention = (m.output_gate ? 3 : 2) * c * q + 2 * c * k;
  if (m.latent) {
    const Latent& l = *m.latent;
    const double queries = real(m.heads * (l.plain + l.rotated));
    attention = (l.query_rank > 0 ? real(l.query_rank) * (c + queries) : c * queries) +
                c * real(l.key_rank + l.rotated) + real(l.key_rank) * real(m.heads) * real(l.plain + l.value) +
                real(m.heads * l.value) * c;
  }
  if (linear) {
    const Linear& l = *m.linear;
    attention = c * real(l.in_features() + l.values()) + 3 * real(l.value_heads * l.key_size * l.value_size);
  }
  const double matrices = m.gated ? 3 : 2;
  if (!sparse) return {attention, matrices * c * real(m.inner)};
  const Experts& e = *m.experts;
  return {attention,
          matrices * c * real(e.top_k * e.inner + e.shared_inner) + c * real(e.count + (e.shared_gate ? 1 : 0))};
}

}  // namespace

double reach_of(const ModelSpec& m, std::int64_t layer, double row_tokens) {
  if (m.is_linear(layer)) return 0;
  const double window = real(m.window(layer));
  return window > 0 ? std::min(window, row_tokens) : row_tokens;
}

double score_width(const ModelSpec& m, int tp) {
  if (!m.latent) return real(m.query_width()) / tp;
  return real(m.heads) * real(m.latent->plain + m.latent->rotated + m.latent->value) / 2;
}

LayerMatrices matrices_of_layer(const ModelSpec& m, std::int64_t layer) {
  return layer_matrices(m, m.is_sparse(layer), m.is_linear(layer));
}

schedule::BlockFlops block_flops(const ModelSpec& m, std::int64_t layer, double row_tokens) {
  const LayerMatrices matrices = matrices_of_layer(m, layer);
  return {2 * matrices.attention, 4 * score_width(m) * reach_of(m, layer, row_tokens), 2 * matrices.mlp};
}

double head_flops(const ModelSpec& m) { return m.family == Family::bert ? 0 : 2 * real(m.vocabulary * m.hidden); }

schedule::ChainTimes chain_flops(const ModelSpec& m, std::int64_t depths, bool halves) {
  const double tokens = real(std::min<std::int64_t>(schedule::flops_of_tokens, m.longest_sequence()));
  std::vector<schedule::BlockFlops> blocks;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) blocks.push_back(block_flops(m, layer, tokens));
  schedule::EndFlops end{.head = head_flops(m), .depths = {}, .depth_map = 4 * real(m.hidden * m.hidden)};
  for (std::int64_t depth = 0; depth < depths; ++depth) end.depths.push_back(block_flops(m, m.layers + depth, tokens));
  return schedule::chain_of_flops(blocks, end, halves);
}

layout::DecoderShape shape_of(const ModelSpec& m) {
  std::int64_t inner = 0;
  for (std::int64_t i = 0; i < m.layers; ++i)
    inner = std::max(inner, m.is_sparse(i) ? m.experts->top_k * m.experts->inner + m.experts->shared_inner : m.inner);
  return {.blocks = m.layers,
          .width = m.hidden,
          .inner = inner,
          .key_value_width = m.latent ? m.heads * m.latent->widest() : m.key_width(),
          .gated = m.gated};
}

}  // namespace tessera::architectures
