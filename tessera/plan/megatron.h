#pragma once
/// \file
/// Predicts Megatron-LM's memory for the same run. It keeps different tensors than we do, so this prediction is
/// compared with published figures of its runs, and its users can plan with it.
///
/// Counts the tensors of megatron/core (commit 23e00ed0, 2026) with the layers of Transformer Engine 2.11, bf16, fused
/// attention and fp32 gradients: the tensors saved by each autograd function (transformer_engine/pytorch/module/*.py,
/// attention/*.py, megatron/core/fusions), and those alive besides them at the peak. Per token and block of a Llama
/// this is 12 h + 4 k + 6 f bytes and 4 per head, as in Korthikanti et al. 2022 ("Reducing Activation Recomputation in
/// Large Transformer Models") without dropout's masks and scores. Only `megatron_workspaces` is fitted.

#include <tessera/plan/memory.h>

#include <vector>

namespace tessera::plan {

struct MegatronOptions {
  /// --cross-entropy-loss-fusion --cross-entropy-fusion-impl te: logits stay in bf16 and are overwritten by their
  /// gradient. Otherwise the gradient is formed in fp32 from their softmax and then converted to bf16.
  bool fused_loss = false;
};

/// Workspaces of cuBLAS and Transformer Engine, random states, rotary tables and the batch, in bytes: the memory of
/// published runs of Llamas, whose activations differ by a factor of thirty, minus all other tensors.
inline constexpr double megatron_workspaces = 50.0 * (1 << 20);

/// One entry per pipeline rank. `plan`: as for memory_by_rank(), with strategy ddp, or zero1 for
/// --use-distributed-optimizer; its numerics are ignored. Kinds: `buffers` are Transformer Engine's dummy gradients,
/// one for each shape of weights; `head` is the additional memory at the peak besides the blocks' activations;
/// `process` the workspaces. Vocabularies are padded to 128 x tp rows. Throws InputError for models and strategies that
/// Megatron-LM does not have, or supports only in a different form: BERT, linear attention, recorded modules, other
/// strategies, offload.
std::vector<Memory> megatron_memory(const Model& model, const Plan& plan, const MegatronOptions& options = {});

}  // namespace tessera::plan
