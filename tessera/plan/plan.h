#pragma once
/// \file
/// The settings of a run that its memory and its time depend on.

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
  bf16,       ///< ours: weights, gradients and states fp32, products in bf16 (autocast)
  bf16_whole  ///< the same with gathered parameters and gradients on the wire in bf16 (--param_dtype, --reduce_dtype)
};
const WordTable& words_of(Precision);

/// Bytes of an element of each kind. The defaults are fp32's.
struct Numerics {
  double shard = 4;             ///< a parameter where it stays
  double whole = 4;             ///< gathered, or as products read it
  double gradient = 4;          ///< where it stays
  double wire = 4;              ///< a gradient on its way
  double states = 8;            ///< the optimizer's, per parameter: AdamW's two moments
  double of_tables = 0;         ///< more of those per element of a table of embeddings (whose states stay wide)
  double residual = 4;          ///< activations between blocks
  double product = 4;           ///< inputs of products, as backward keeps them
  double inside = 4;            ///< what attention and the MLP keep besides
  bool copies = false;          ///< an input of a product is kept beside the tensor it was made from
  double logits = 8;            ///< per token and word at the peak of a head that forms all logits
  bool head_in_chunks = false;  ///< on a device the head forms its loss over chunks of tokens (nn/device/head_loss.h)
};
/// What our code keeps: on the CPU under autocast inputs of products are copies in bf16, everything else is fp32
/// (nn/linear.cpp); elsewhere ATen's autocast gives bf16 to whatever follows a product, and bf16 weights to the
/// residual stream, too.
Numerics numerics_of(Precision precision, bool on_cpu);
/// bf16 weights and activations, fp32 gradients, fp32 copy of the weights and moments: Megatron-LM's mixed precision
/// (its page about the distributed optimizer: 6 + 12 / d bytes per parameter). For comparisons with published runs.
Numerics megatron_numerics();
/// Those of an engine with mixed precision as it is used with it: Megatron-LM's for it and DeepSpeed, FSDP's (fp32
/// shards, gathered in bf16, gradients in bf16 on the wire where the engine does so) for torchtitan and fsdp2.
Numerics engine_numerics(const Engine& engine);

struct Plan {
  layout::Mesh mesh;
  Strategy strategy = Strategy::ddp;
  Offload offload = Offload::none;
  Precision precision = Precision::bf16;
  Numerics numerics;
  Engine engine;
  bool on_cpu = false;
  std::int64_t sequence = 1024;    ///< tokens of a row
  std::int64_t rows = 1;           ///< in a micro-batch, per data-parallel rank
  std::int64_t micro_batches = 1;  ///< in a step (gradient accumulation, or those of the pipeline)
  std::int64_t recompute = 0;      ///< blocks 0, recompute, 2 recompute, ... are computed again; 0: none, 1: all
  layout::CheckpointPart recomputed_part = layout::CheckpointPart::block;  ///< what is computed again of them
  std::vector<bool> recomputed_names = {};  ///< by block: whether its name is one that is asked for; empty: all are
  bool scores_again = false;  ///< attention without its projections is computed again ("selective", Korthikanti 2022)
  bool inputs_are_offloaded = false;  ///< what a recomputed part keeps is not in memory
  bool sequence_parallel = false;     ///< norms and residuals on parts of the sequence, too
  std::string schedule = "1f1b";      ///< the pipeline's (layout/schedule/table.h)
  std::int64_t stages_per_rank = 1;   ///< v
  double bucket_bytes = 25.0 * (1 << 20);
  std::vector<layout::StagePart> parts;  ///< the stages' pieces of the model, as cut_plan() makes them

  bool recomputes(std::int64_t block) const {
    const auto i = static_cast<std::size_t>(block);
    return recompute > 0 && block % recompute == 0 && (i >= recomputed_names.size() || recomputed_names[i]);
  }
  /// The share of blocks that are computed again: 1 / recompute where names choose none.
  double recomputed_share() const;

  int tp() const { return mesh.size(layout::Axis::tp); }
  int cp() const { return mesh.size(layout::Axis::cp); }
  int pp() const { return mesh.size(layout::Axis::pp); }
  int dp() const { return mesh.size(layout::Axis::dp_shard) * mesh.size(layout::Axis::dp_replicate); }
  /// Ranks that divide the states of parameters that are no experts, and of experts.
  int shard_ranks() const;
  int expert_shard_ranks() const;
  /// Tokens of a micro-batch on one rank, before tensor parallelism divides any.
  double tokens() const {
    return static_cast<double>(rows) * static_cast<double>(sequence) / static_cast<double>(cp());
  }
  /// Tokens of a step, over all ranks.
  double tokens_per_step() const {
    return static_cast<double>(rows * micro_batches * dp()) * static_cast<double>(sequence);
  }
};

/// How many blocks' attention and MLPs a stage has, of dense and of sparse blocks; computed depths of multi-token
/// prediction are blocks of the end.
struct Halves {
  double attention[2] = {0, 0}, mlp[2] = {0, 0};
  double blocks(int kind) const { return std::max(attention[kind], mlp[kind]); }  ///< cut ones among them
};
Halves halves_of(const Model& model, const layout::StagePart& part);

/// Fills run.parts: blocks as evenly as can be over pp x v stages. `embeddings_as`, `end_as`: as so many blocks; a
/// computed depth of multi-token prediction is one more. Layers of a recorded module by their arithmetic instead.
void cut_plan(const Model& model, Plan& run, double embeddings_as = 0, double end_as = 0);

/// What cannot be: axes that do not divide heads, blocks, experts or rows, with the rule, the numbers and the nearest
/// that can. Empty: nothing.
std::string plan_problem(const Model& model, const Plan& run);

/// "tp 8, pp 4, full_shard over 8, 2 copies; 1f1b; recompute; 2 rows x 16".
std::string text_of(const Plan& run);

}  // namespace tessera::plan
