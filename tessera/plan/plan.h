#pragma once
/// \file
/// The settings of a run that affect its memory and time.

#include <tessera/layout/checkpoint_plan.h>
#include <tessera/layout/mesh.h>
#include <tessera/layout/stages.h>
#include <tessera/layout/strategy.h>
#include <tessera/plan/engine.h>
#include <tessera/plan/model.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::plan {

enum class Precision : unsigned char {
  fp32,
  bf16,       ///< ours: fp32 weights, gradients and states; products in bf16 (autocast)
  bf16_whole  ///< the same with gathered parameters and gradient reductions in bf16 (--param_dtype, --reduce_dtype)
};
const WordTable& words_of(Precision);

/// Bytes per element of each kind of data. The defaults are for fp32.
struct Numerics {
  double shard = 4;     ///< a stored parameter
  double whole = 4;     ///< a gathered parameter, or a parameter as read by products
  double gradient = 4;  ///< a stored gradient
  double wire = 4;      ///< a gradient during reduction
  double states = 8;    ///< optimizer states per parameter: AdamW's two moments
  /// additional state bytes per element of embedding tables, whose states are not reduced
  double of_tables = 0;
  double residual = 4;          ///< activations between blocks
  double product = 4;           ///< inputs of products, as kept for backward
  double inside = 4;            ///< other activations kept by attention and the MLP
  bool copies = false;          ///< a product's input is kept in addition to the tensor it was converted from
  double logits = 8;            ///< per token and word at the peak of a head that forms all logits at once
  bool head_in_chunks = false;  ///< on a device the head computes its loss in chunks of tokens (nn/device/head_loss.h)
};
/// The tensors that our code keeps: on the CPU under autocast, inputs of products are bf16 copies and everything else
/// is fp32 (nn/linear.cpp); elsewhere, under ATen's autocast, everything after a product is bf16; with bf16 weights the
/// residual stream is bf16 as well.
Numerics numerics_of(Precision precision, bool on_cpu);
/// bf16 weights and activations, fp32 gradients, fp32 master weights and moments: Megatron-LM's mixed precision (its
/// page on the distributed optimizer: 6 + 12 / d bytes per parameter). For comparison with published runs.
Numerics megatron_numerics();
/// Element sizes of an engine's usual mixed precision. Megatron-LM and DeepSpeed use Megatron-LM's; torchtitan and
/// fsdp2 use FSDP's (fp32 shards, gathered in bf16, gradients reduced in bf16 if the engine does so).
Numerics engine_numerics(const Engine& engine);

struct Plan {
  layout::Mesh mesh;
  Strategy strategy = Strategy::ddp;
  Offload offload = Offload::none;
  Precision precision = Precision::bf16;
  Numerics numerics;
  Engine engine;
  bool on_cpu = false;
  std::int64_t sequence = 1024;    ///< tokens per row
  std::int64_t rows = 1;           ///< per micro-batch and data-parallel rank
  std::int64_t micro_batches = 1;  ///< per step (gradient accumulation, or micro-batches of the pipeline)
  std::int64_t recompute = 0;      ///< blocks 0, recompute, 2 recompute, ... are recomputed; 0: none, 1: all
  layout::CheckpointPart recomputed_part = layout::CheckpointPart::block;  ///< the recomputed part of each
  std::vector<bool> recomputed_names = {};  ///< by block: whether its name is selected; empty: all blocks are
  bool scores_again = false;  ///< attention without its projections is recomputed ("selective", Korthikanti 2022)
  bool inputs_are_offloaded = false;  ///< inputs of recomputed parts are offloaded from memory
  bool sequence_parallel = false;     ///< norms and residuals are sharded along the sequence
  std::string schedule = "1f1b";      ///< schedule of the pipeline (layout/schedule/table.h)
  std::int64_t stages_per_rank = 1;   ///< v
  double bucket_bytes = 25.0 * (1 << 20);
  std::vector<layout::StagePart> parts;  ///< the stages' pieces of the model, set by cut_plan()

  bool recomputes(std::int64_t block) const {
    const auto i = static_cast<std::size_t>(block);
    return recompute > 0 && block % recompute == 0 && (i >= recomputed_names.size() || recomputed_names[i]);
  }
  /// The share of blocks that are recomputed: 1 / recompute unless names are selected.
  double recomputed_share() const;

  int tp() const { return mesh.size(layout::Axis::tp); }
  int cp() const { return mesh.size(layout::Axis::cp); }
  int pp() const { return mesh.size(layout::Axis::pp); }
  int dp() const { return mesh.size(layout::Axis::dp_shard) * mesh.size(layout::Axis::dp_replicate); }
  /// Number of ranks that divide the states of non-expert parameters, and of experts.
  int shard_ranks() const;
  int expert_shard_ranks() const;
  /// Tokens of a micro-batch on one rank, before division by tensor parallelism.
  double tokens() const {
    return static_cast<double>(rows) * static_cast<double>(sequence) / static_cast<double>(cp());
  }
  /// Tokens per step over all ranks.
  double tokens_per_step() const {
    return static_cast<double>(rows * micro_batches * dp()) * static_cast<double>(sequence);
  }
};

/// Numbers of attentions and MLPs of a stage, for dense and for sparse blocks; computed depths of multi-token
/// prediction count as blocks of the end.
struct Halves {
  double attention[2] = {0, 0}, mlp[2] = {0, 0};
  double blocks(int kind) const { return std::max(attention[kind], mlp[kind]); }  ///< including cut blocks
};
Halves halves_of(const Model& model, const layout::StagePart& part);

/// Sets run.parts: blocks distributed as evenly as possible over pp x v stages. `embeddings_as`, `end_as`: counted as
/// this many blocks; each computed depth of multi-token prediction adds one. Layers of a recorded module are
/// distributed by their arithmetic.
void cut_plan(const Model& model, Plan& run, double embeddings_as = 0, double end_as = 0);

/// Checks that the axes divide heads, blocks, experts and rows. Returns the rule, the numbers and the nearest sizes
/// that fit; empty: no problem.
std::string plan_problem(const Model& model, const Plan& run);

/// "tp 8, pp 4, full_shard over 8, 2 copies; 1f1b; recompute; 2 rows x 16".
std::string text_of(const Plan& run);

}  // namespace tessera::plan
