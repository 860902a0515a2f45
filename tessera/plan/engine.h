#pragma once
/// \file
/// Properties of a training program (an engine in a given year) that affect the step time. Published runs are predicted
/// for the engine that they used, and a user's run for ours unless `--engine` and `--engine_year` select another.
///
/// Sources: attention: scores in memory (Narayanan et al. 2021), FlashAttention (Dao et al. 2022), FlashAttention-2
/// (Dao 2023), kernels for Hopper and later (Shah et al. 2024; cuDNN 9); sequence parallelism: Korthikanti et al. 2022;
/// tensor-parallel communication overlapped with products: Transformer Engine's user buffers (`tp_comm_overlap`, 2024),
/// torchtitan's asynchronous tensor parallelism (2025); scattered pipeline messages: Narayanan et al. 2021, section
/// 4.1; gradient reduction in bf16: NeMo's recipes (2024).

#include <tessera/base/words.h>
#include <tessera/layout/strategy.h>

#include <string>
#include <string_view>

namespace tessera::plan {

struct Device;

enum class EngineName : unsigned char { tessera, megatron, deepspeed, torchtitan, fsdp2 };
const WordTable& words_of(EngineName);

/// How attention treats its scores.
enum class AttentionKernel : unsigned char {
  scores_in_memory,  ///< products, softmax and dropout, each reading and writing memory
  flash1,            ///< FlashAttention (2022), also in Triton
  flash2,            ///< FlashAttention-2 (2023)
  newest             ///< as given by the device's hardware entry
};

struct Engine {
  EngineName name = EngineName::tessera;
  int year = 0;  ///< 0: the current year's
  AttentionKernel attention = AttentionKernel::newest;
  double pass_bytes = 1;     ///< bytes moved by passes, relative to ours
  double loss_bytes = 0;     ///< bytes moved by the loss per token and word, forward and backward; 0: ours (numerics)
  double tensor_hidden = 0;  ///< share of tensor-parallel communication hidden behind products
  double data_hidden = 0.9;  ///< share of computing that can hide data-parallel communication
  double pipeline_host_seconds = 0;  ///< device idle time per block in forward (backward: twice) in a pipeline
  double slow_nodes = 0;             ///< share of nodes that are a tenth slower without being detected
  bool sequence_parallel = true;     ///< norms and residuals are sharded along the sequence under tensor parallelism
  bool waits_for_messages = false;   ///< a pipeline's sends and receives do not overlap with computing
  /// pipeline messages are divided by tensor parallelism even without sequence parallelism
  bool scattered_messages = false;
  bool narrow_gradients = false;  ///< gradients are reduced in bf16
};

/// `year` 0: the newest known. Years before an engine's first version are treated as its first.
Engine engine_of(EngineName name, int year = 0);

/// "megatron of 2023", "torchtitan".
std::string text_of(const Engine& engine);

/// Whether an engine supports a pipeline schedule ("1f1b"), or a strategy with `pp` pipeline ranks. Ours supports all.
bool has_schedule(EngineName engine, std::string_view schedule);
bool has_strategy(EngineName engine, Strategy strategy, int pp);
/// Whether it supports tensor, context, pipeline and expert parallelism. Only fsdp2 does not.
bool cuts_models(EngineName engine);

/// The share of a device's peak that attention reaches with kernels of this kind; not for scores_in_memory.
double attention_share(const Device& device, AttentionKernel kernel);

}  // namespace tessera::plan
