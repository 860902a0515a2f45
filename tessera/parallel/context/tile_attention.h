#pragma once
/// \file
/// Attention between queries and one block of keys, tile by tile, by the flash kernel (or
/// nn/attention/dropout_attention.h if weights are dropped or scores capped), without a matrix of all queries and keys.
/// Results of several blocks are merged by their log-sum-exp (Liu et al. 2023, Ring Attention; Dao et al. 2022).

#include <ATen/core/Tensor.h>

#include <tessera/layout/sequence.h>
#include <tessera/nn/attention/dropout_attention.h>

#include <span>
#include <vector>

namespace tessera::parallel {

struct TileOptions {
  double scale = 1;         ///< factor of q k^T
  double softcap = 0;       ///< caps the scores (nn/softcap.h); 0: no cap
  std::int64_t window = 0;  ///< used for tiles of kind band
  nn::WeightDropout dropout = {};
};

/// Softmax-weighted values of the keys processed so far. In fp32 (fp64 for fp64). A query that has attended to nothing
/// has output 0 and log-sum-exp -infinity.
struct PartialAttention {
  at::Tensor out;      ///< [B, t, heads, D]; undefined before the first block
  at::Tensor log_sum;  ///< [B, heads, t]
};

/// A block of keys, and its tiles that the queries attend to.
struct KeyBlock {
  at::Tensor k, v;  ///< [B, t', key heads, D], key heads dividing heads
  const std::vector<layout::Tile>& tiles;
  std::span<const std::int64_t> positions = {};  ///< positions of its tokens in their row, for dropout
};

/// Adds a block: q [B, t, heads, D].
void add_block(PartialAttention& sum, const at::Tensor& q, const KeyBlock& block, const TileOptions& options);

/// Results of forward over all keys that backward needs: out [B, t, heads, D] of q's type, log_sum, and the gradient of
/// out.
struct AttentionResult {
  at::Tensor q, out, log_sum, gradient;
};

/// A sum of gradients whose memory is uninitialised until something is added: a block that covers all of it is written
/// directly rather than added to zeros.
struct GradientSum {
  at::Tensor total;  ///< [B, t, heads, D], fp32 or fp64
  bool begun = false;
  /// The sum; 0 if nothing was added.
  const at::Tensor& value();
};

/// Adds the gradients of one block to dq [B, t, heads, D] and dk, dv [B, t', key heads, D].
void add_block_gradients(GradientSum& dq, GradientSum& dk, GradientSum& dv, const AttentionResult& result,
                         const KeyBlock& block, const TileOptions& options);

}  // namespace tessera::parallel
