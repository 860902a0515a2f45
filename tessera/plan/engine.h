#pragma once
/// \file
/// Whose program trains: what an engine of a year does that a step's time depends on. Published runs are predicted for
/// the engine that they used, ours for us (`--engine`, `--engine_year`).
///
/// Sources: attention: scores in memory (Narayanan et al. 2021), FlashAttention (Dao et al. 2022), FlashAttention-2
/// (Dao 2023), kernels for Hopper and later (Shah et al. 2024; cuDNN 9); sequence parallelism: Korthikanti et al. 2022;
/// exchanges of tensor parallelism behind products: Transformer Engine's user buffers (`tp_comm_overlap`, 2024),
/// asynchronous tensor parallelism of torchtitan (2025); scattered messages of pipelines: Narayanan et al. 2021,
/// section 4.1; reductions of gradients in bf16: recipes of NeMo (2024).

#include <tessera/base/words.h>
#include <tessera/layout/strategy.h>

#include <string>
#include <string_view>

namespace tessera::plan {

struct Device;

enum class EngineName : unsigned char { tessera, megatron, deepspeed, torchtitan, fsdp2 };
const WordTable& words_of(EngineName);

/// What attention does with its scores.
enum class AttentionKernel : unsigned char {
  scores_in_memory,  ///< products, a softmax and a dropout, each through memory
  flash1,            ///< FlashAttention (2022), also in Triton
  flash2,            ///< FlashAttention-2 (2023)
  newest             ///< what the device's table of hardware says
};

struct Engine {
  EngineName name = EngineName::tessera;
  int year = 0;  ///< 0: today's
  AttentionKernel attention = AttentionKernel::newest;
  double pass_bytes = 1;     ///< what passes move, over what ours do
  double loss_bytes = 0;     ///< that the loss moves per token and word, forward and backward; 0: ours (numerics)
  double tensor_hidden = 0;  ///< share of tensor parallelism's exchanges that products hide
  double data_hidden = 0.9;  ///< share of computing that can hide exchanges of data parallelism
  double pipeline_host_seconds = 0;  ///< that the device waits in a block's forward (backward: twice) in a pipeline
  double slow_nodes = 0;             ///< share of nodes that are a tenth slower than the others, unnoticed
  bool sequence_parallel = true;     ///< norms and residuals are divided where tensor parallelism is
  bool waits_for_messages = false;   ///< a pipeline's sends and receives are no work beside computing
  bool scattered_messages = false;   ///< messages of a pipeline are divided by tensor parallelism without it, too
  bool narrow_gradients = false;     ///< gradients travel in bf16
};

/// `year` 0: the newest that is known. Years before an engine began count as its first.
Engine engine_of(EngineName name, int year = 0);

/// "megatron of 2023", "torchtitan".
std::string text_of(const Engine& engine);

/// Whether an engine has a pipeline's schedule ("1f1b"), a strategy in a pipeline of so many ranks. Ours has all.
bool has_schedule(EngineName engine, std::string_view schedule);
bool has_strategy(EngineName engine, Strategy strategy, int pp);
/// Whether it cuts models: tensor, context, pipeline and expert parallelism. fsdp2 alone does not.
bool cuts_models(EngineName engine);

/// The share of a device's peak that attention reaches with kernels of that kind; scores in memory are none of them.
double attention_share(const Device& device, AttentionKernel kernel);

}  // namespace tessera::plan
