#pragma once
/// \file
/// What Megatron-LM would allocate for the same run. It keeps other tensors than we do, so that figures of its runs are
/// compared with these, and people who run it can ask here first.
///
/// Counted are the tensors of megatron/core (commit 23e00ed0, 2026) with the layers of Transformer Engine 2.11, bf16,
/// fused attention and fp32 gradients: what each autograd function saves (transformer_engine/pytorch/module/*.py,
/// attention/*.py, megatron/core/fusions), and what is alive beside it at the fullest moment. Per token and block of a
/// Llama this is 12 h + 4 k + 6 f bytes and 4 per head, as in Korthikanti et al. 2022 ("Reducing Activation
/// Recomputation in Large Transformer Models") without dropout's masks and scores. Nothing is fitted but
/// `megatron_workspaces`.

#include <tessera/plan/memory.h>

#include <vector>

namespace tessera::plan {

struct MegatronOptions {
  /// --cross-entropy-loss-fusion --cross-entropy-fusion-impl te: logits stay in bf16 and become their own gradient.
  /// Else their softmax in fp32 does, from which that in bf16 is made.
  bool fused_loss = false;
};

/// Workspaces of cuBLAS and Transformer Engine, random states, rotary tables and the batch, in bytes: what is left when
/// all other tensors are taken from published runs of Llamas, whose activations differ by a factor of thirty.
inline constexpr double megatron_workspaces = 50.0 * (1 << 20);

/// One per rank of the pipeline. `plan`: as for memory_by_rank(), with strategy ddp, or zero1 for
/// --use-distributed-optimizer; its numerics are not looked at. Kinds: `buffers` are Transformer Engine's dummy
/// gradients, one of each shape of weights; `head` is what the fullest moment needs beside what blocks keep; `process`
/// the workspaces. Vocabularies are padded to 128 x tp rows. Throws InputError for models and strategies that
/// Megatron-LM has not, or not in this form: BERT, linear attention, recorded modules, other strategies, offload.
std::vector<Memory> megatron_memory(const Model& model, const Plan& plan, const MegatronOptions& options = {});

}  // namespace tessera::plan
