#pragma once
/// \file
/// The arithmetic of an architecture, in FLOP and in matrix elements: for MFU, pipeline cuts and the planner.

#include <tessera/architectures/spec.h>
#include <tessera/layout/schedule/cut.h>
#include <tessera/layout/state_bytes.h>

#include <cstdint>

namespace tessera::architectures {

/// Matrix elements of a layer that a token uses: attention's, and those of the MLP or of the token's experts.
struct LayerMatrices {
  double attention = 0, mlp = 0;                  ///< elements each
  double all() const { return attention + mlp; }  ///< both
};
LayerMatrices matrices_of_layer(const ModelSpec& spec, std::int64_t layer);
/// Width of scores and weighted values per token and visible token, on one of `tp` ranks: the mean of the two, which
/// differ in latent attention (the head sizes of queries and of values). With latent attention every rank computes all
/// heads.
double score_width(const ModelSpec& spec, int tp = 1);
/// Tokens visible to a layer's attention in a row of `row_tokens`; the states of linear attention are counted with the
/// matrices.
double reach_of(const ModelSpec& spec, std::int64_t layer, double row_tokens);

/// FLOP of a layer's forward pass, per token of a row of `row_tokens`.
layout::schedule::BlockFlops block_flops(const ModelSpec& spec, std::int64_t layer, double row_tokens);
/// FLOP of a token's logits; 0 for BERT, whose head processes few tokens.
double head_flops(const ModelSpec& spec);
/// FLOP per token of each piece of a pipeline, in rows of layout::schedule::flops_of_tokens or of the maximum length if
/// shorter. `depths`: computed depths of multi-token prediction.
layout::schedule::ChainTimes chain_flops(const ModelSpec& spec, std::int64_t depths, bool halves);

/// Returns the sizes that the memory formulas use.
layout::DecoderShape shape_of(const ModelSpec& spec);

}  // namespace tessera::architectures
