#pragma once
/// \file
/// The arithmetic of an architecture, in FLOP and in elements of matrices: what a run's MFU divides by, what pipelines
/// are cut by, what the planner counts.

#include <tessera/architectures/spec.h>
#include <tessera/layout/schedule/cut.h>
#include <tessera/layout/state_bytes.h>

#include <cstdint>

namespace tessera::architectures {

/// Matrix elements of a layer that a token meets: attention's, and those of the MLP or of the experts that it goes to.
struct LayerMatrices {
  double attention = 0, mlp = 0;                  ///< elements each
  double all() const { return attention + mlp; }  ///< both
};
LayerMatrices matrices_of_layer(const ModelSpec& spec, std::int64_t layer);
/// Numbers that scores and their mixtures are made of, per token and token seen, on one of `tp` ranks: the mean of the
/// two, since in latent attention scores are as wide as queries, mixtures as values. Of latent attention every rank
/// computes all heads.
double score_width(const ModelSpec& spec, int tp = 1);
/// Tokens within reach of a layer's attention in a row of `row_tokens`; memories of linear attention are counted with
/// the matrices.
double reach_of(const ModelSpec& spec, std::int64_t layer, double row_tokens);

/// A layer's forward pass, per token of a row of `row_tokens`.
layout::schedule::BlockFlops block_flops(const ModelSpec& spec, std::int64_t layer, double row_tokens);
/// The logits of a token; 0 for BERT, whose heads see few tokens.
double head_flops(const ModelSpec& spec);
/// FLOP per token of the passes through each piece of a pipeline, in rows of layout::schedule::flops_of_tokens, or as
/// long as they may be. `depths`: those of multi-token prediction that are computed.
layout::schedule::ChainTimes chain_flops(const ModelSpec& spec, std::int64_t depths, bool halves);

/// The sizes that formulas of memory need.
layout::DecoderShape shape_of(const ModelSpec& spec);

}  // namespace tessera::architectures
