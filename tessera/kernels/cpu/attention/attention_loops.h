#pragma once
/// \file
/// attention.h over F32. Included by loops.h inside the anonymous namespace of a table.
///
/// Tiles of scores have one row per key and one lane per query, so that maxima, sums and the scaling of a query's row
/// are operations on whole vectors, and keys are never transposed; only a tile's queries are, once.

#include <tessera/kernels/cpu/attention/product_loops.h>
#include <tessera/kernels/cpu/exp_loops.h>

constexpr std::int64_t attention_vectors = attention_tile / F32::width;

/// Computes to [size, tile] = scale * the transpose of x [n, size], with zeros in the lanes from n on.
inline void transpose_tile(const float* x, std::int64_t stride, std::int64_t n, std::int64_t size, float scale,
                           float* to) {
  if (n < attention_tile) __builtin_memset(to, 0, static_cast<std::size_t>(size * attention_tile) * sizeof(float));
  for (std::int64_t d = 0; d < size; d += 16)
    for (std::int64_t t = 0; t < n; ++t)
      for (std::int64_t i = d; i < d + 16; ++i) to[i * attention_tile + t] = scale * x[t * stride + i];
}

inline void copy_rows(const float* x, std::int64_t stride, std::int64_t n, std::int64_t size, float* to) {
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t i = 0; i < size; i += F32::width) F32::load(x + t * stride + i).store(to + t * size + i);
}

/// For a vector that starts at query `lane` of a tile in which queries from `seen_from` on attend to a key: sets the
/// lanes of earlier queries to `other`.
inline __attribute__((always_inline)) F32 from_lane(F32 x, std::int64_t seen_from, std::int64_t lane, F32 other) {
  const std::int64_t hidden = seen_from - lane;
  if (hidden <= 0) return x;
  return hidden >= F32::width ? other : keep(other, static_cast<int>(hidden), x);
}

/// For the same kind of vector: sets the lanes of queries from `hidden_from` on, for which the key is outside of the
/// window, to `other`.
inline __attribute__((always_inline)) F32 until_lane(F32 x, std::int64_t hidden_from, std::int64_t lane, F32 other) {
  const std::int64_t seen = hidden_from - lane;
  if (seen >= F32::width) return x;
  return seen <= 0 ? other : keep(x, static_cast<int>(seen), other);
}

/// The tile that contains the first key to which any query from `first` on attends.
inline std::int64_t first_keys(const AttentionHead& a, std::int64_t first) {
  const std::int64_t key = a.window > 0 ? first - a.window + 1 : 0;
  return key > 0 ? key / attention_tile * attention_tile : 0;
}

/// Determines which lanes of a tile of queries [first, first + n) attend to keys [begin, begin + keys).
struct SeenLanes {
  std::int64_t shift, window;  ///< query lane t attends to key k if k + shift <= t < k + shift + window
  bool later, earlier;         ///< whether some keys come after a query, and whether some come before its window

  SeenLanes(const AttentionHead& a, std::int64_t first, std::int64_t n, std::int64_t begin, std::int64_t keys)
      : shift(begin - first),
        window(a.window),
        later(a.causal && begin + keys > first),
        earlier(a.window > 0 && begin + a.window < first + n) {}
  __attribute__((always_inline)) F32 keep_seen(std::int64_t k, F32 x, std::int64_t lane, F32 other) const {
    if (later) x = from_lane(x, k + shift, lane, other);
    if (earlier) x = until_lane(x, k + shift + window, lane, other);
    return x;
  }
};

inline void attention_tile_loop(const AttentionHead& a, std::int64_t first, std::int64_t n, const float* values,
                                float* out, std::int64_t out_stride, float* log_sums, float* scratch) {
  constexpr std::int64_t tile = attention_tile;
  const std::int64_t size = a.size;
  float *queries = scratch, *scores = queries + size * tile, *sums = scores + tile * tile, *stats = sums + tile * size;
  float *largest = stats, *total = stats + tile, *factor = stats + 2 * tile;
  transpose_tile(a.q + first * a.q_stride, a.q_stride, n, size, a.scale, queries);
  // Below every score, but finite: a query with a window may not attend to any of its tile's first keys, and the
  // difference of two infinities is undefined.
  constexpr float lowest = -1e30f;
  for (std::int64_t t = 0; t < tile; ++t) largest[t] = lowest, total[t] = 0;
  const std::int64_t past = a.causal ? first + n : a.keys, start = first_keys(a, first);
  for (std::int64_t begin = start; begin < past; begin += tile) {
    const std::int64_t keys = past - begin < tile ? past - begin : tile;
    product(keys, tile, size, a.k + begin * a.k_stride, a.k_stride, 1, queries, tile, scores, tile, false);
    const SeenLanes seen(a, first, n, begin, keys);
    for (std::int64_t j = 0; j < attention_vectors; ++j) {
      const std::int64_t lane = j * F32::width;
      const F32 none = F32::of(lowest), zero = F32::of(0), before = F32::load(largest + lane);
      F32 most = before;
      for (std::int64_t k = 0; k < keys; ++k)
        most = max(most, seen.keep_seen(k, F32::load(scores + k * tile + lane), lane, none));
      F32 sum = zero;
      for (std::int64_t k = 0; k < keys; ++k) {
        const F32 p = seen.keep_seen(k, exp(F32::load(scores + k * tile + lane) - most), lane, zero);
        p.store(scores + k * tile + lane);
        sum = sum + p;
      }
      const F32 shrinks = exp(before - most);
      shrinks.store(factor + lane);
      most.store(largest + lane);
      fma(F32::load(total + lane), shrinks, sum).store(total + lane);
    }
    if (begin > start)
      for (std::int64_t t = 0; t < n; ++t) {
        const F32 shrinks = F32::of(factor[t]);
        for (std::int64_t i = 0; i < size; i += F32::width)
          (F32::load(sums + t * size + i) * shrinks).store(sums + t * size + i);
      }
    product(n, size, keys, scores, 1, tile, values + begin * size, size, sums, size, begin > start);
  }
  for (std::int64_t t = 0; t < n; ++t) {
    const F32 share = F32::of(1 / total[t]);
    for (std::int64_t i = 0; i < size; i += F32::width)
      (F32::load(sums + t * size + i) * share).store(out + (first + t) * out_stride + i);
    log_sums[first + t] = largest[t] + __builtin_logf(total[t]);
  }
}

void attention_loop(const AttentionHead& a, std::int64_t first, std::int64_t end, float* out, std::int64_t out_stride,
                    float* log_sums, float* scratch) {
  const std::int64_t past = a.causal ? end : a.keys, start = first_keys(a, first);
  copy_rows(a.v + start * a.v_stride, a.v_stride, past - start, a.size, scratch + start * a.size);
  for (; first < end; first += attention_tile)
    attention_tile_loop(a, first, end - first < attention_tile ? end - first : attention_tile, scratch, out, out_stride,
                        log_sums, scratch + a.keys * a.size);
}

void attention_backward_loop(const AttentionHead& a, const AttentionGradients& g, float* scratch) {
  constexpr std::int64_t tile = attention_tile;
  const std::int64_t size = a.size;
  float *keys = scratch, *queries_t = keys + a.keys * size, *dout_t = queries_t + size * tile,
        *queries = dout_t + size * tile, *dout = queries + tile * size, *dq = dout + tile * size,
        *scores = dq + tile * size, *dscores = scores + tile * tile, *delta = dscores + tile * tile,
        *log_sums = delta + tile;
  copy_rows(a.k, a.k_stride, a.keys, size, keys);
  for (std::int64_t first = 0; first < a.queries; first += tile) {
    const std::int64_t n = a.queries - first < tile ? a.queries - first : tile;
    transpose_tile(a.q + first * a.q_stride, a.q_stride, n, size, a.scale, queries_t);
    transpose_tile(g.dout + first * g.dout_stride, g.dout_stride, n, size, 1, dout_t);
    copy_rows(a.q + first * a.q_stride, a.q_stride, n, size, queries);
    copy_rows(g.dout + first * g.dout_stride, g.dout_stride, n, size, dout);
    for (std::int64_t t = 0; t < tile; ++t) {
      F32 dot = F32::of(0);
      if (t < n)
        for (std::int64_t i = 0; i < size; i += F32::width)
          dot = fma(F32::load(g.out + (first + t) * g.out_stride + i), F32::load(dout + t * size + i), dot);
      delta[t] = sum(dot);
      log_sums[t] = t < n ? g.log_sums[first + t] : __builtin_inff();  // this lane has no query, so all weights are 0
    }
    const std::int64_t past = a.causal ? first + n : a.keys, start = first_keys(a, first);
    for (std::int64_t begin = start; begin < past; begin += tile) {
      const std::int64_t m = past - begin < tile ? past - begin : tile;
      const SeenLanes seen(a, first, n, begin, m);
      // In a causal head, a tile's keys are first used by the queries of the same tokens.
      const bool new_keys = a.causal ? seen.later : first == 0;
      product(m, tile, size, keys + begin * size, size, 1, queries_t, tile, scores, tile, false);
      product(m, tile, size, a.v + begin * a.v_stride, a.v_stride, 1, dout_t, tile, dscores, tile, false);
      const F32 zero = F32::of(0), scale = F32::of(a.scale);
      for (std::int64_t k = 0; k < m; ++k)
        for (std::int64_t lane = 0; lane < tile; lane += F32::width) {
          F32 p = exp(F32::load(scores + k * tile + lane) - F32::load(log_sums + lane));
          p = seen.keep_seen(k, p, lane, zero);
          p.store(scores + k * tile + lane);
          (p * scale * (F32::load(dscores + k * tile + lane) - F32::load(delta + lane)))
              .store(dscores + k * tile + lane);
        }
      product(m, size, n, scores, tile, 1, dout, size, g.dv + begin * g.dv_stride, g.dv_stride, !new_keys);
      product(m, size, n, dscores, tile, 1, queries, size, g.dk + begin * g.dk_stride, g.dk_stride, !new_keys);
      product(n, size, m, dscores, 1, tile, keys + begin * size, size, dq, size, begin > start);
    }
    for (std::int64_t t = 0; t < n; ++t)
      for (std::int64_t i = 0; i < size; i += F32::width)
        F32::load(dq + t * size + i).store(g.dq + (first + t) * g.dq_stride + i);
  }
}
