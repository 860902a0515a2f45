#include <tessera/plan/engine.h>

#include <tessera/base/text.h>
#include <tessera/plan/hardware.h>

#include <algorithm>

namespace tessera::plan {

const WordTable& words_of(EngineName) {
  static const WordTable words = {{"tessera", "megatron", "deepspeed", "torchtitan", "fsdp2"},
                                  {{"nemo", "megatron"}, {"megatron-lm", "megatron"}, {"fsdp", "fsdp2"}}};
  return words;
}

namespace {

/// The attention kernel in an engine's releases of a year.
AttentionKernel attention_in(int year, int flash1, int flash2, int newest) {
  return year >= newest   ? AttentionKernel::newest
         : year >= flash2 ? AttentionKernel::flash2
         : year >= flash1 ? AttentionKernel::flash1
                          : AttentionKernel::scores_in_memory;
}

}  // namespace

namespace {

// Bytes that a loss moves per token and word. Megatron-LM's loss in fp32: a cast reads 2 bytes and writes 4, the
// maximum reads 4, difference, exponential and quotient read and write 4 each, their sum reads 4, and backward's
// product and cast move 8 and 6. Autocast's loss: a cast, a log-softmax, its backward, a cast. Compiled or fused: two
// passes.
constexpr double loss_by_parts = 46, loss_of_autocast = 28, loss_compiled = 16, loss_fused = 14;

// Traffic of other engines' passes relative to ours, fitted to the steps of published runs, for each implementation of
// a block: separate operators under autocast; jitted or fused by hand (bias and gelu, bias, dropout and sum); compiled.
constexpr double passes_one_by_one = 1.9, passes_fused_by_hand = 1.5, passes_compiled = 1.3;

void as_megatron(Engine& e, int year) {
  e.attention = attention_in(year, 2023, 2024, 2024);  // Transformer Engine with cuDNN 9
  e.pass_bytes = passes_fused_by_hand;
  e.loss_bytes = year >= 2025 ? loss_fused : loss_by_parts;
  // Transformer Engine's user buffers: products are cut into pieces, and the first and last exchange of each cannot be
  // hidden.
  e.tensor_hidden = year >= 2024 ? 0.7 : 0;
  e.sequence_parallel = year >= 2022;
  e.waits_for_messages = year < 2024;  // --overlap-p2p-communication
  e.scattered_messages = true;
  e.narrow_gradients = year >= 2024;
}

void as_deepspeed(Engine& e, int year) {
  e.attention = attention_in(year, 2023, 2024, 2025);
  e.pass_bytes = passes_fused_by_hand;
  e.loss_bytes = loss_by_parts;
  // In BigScience's and MT-NLG's runs, with micro-batches of 1 to 4 rows and 2 to 16 blocks per stage, 20 to 37 ms per
  // block and micro-batch remain unexplained, regardless of the sizes: forward, recomputed forward, and twice that for
  // backward.
  e.pipeline_host_seconds = year <= 2022 ? 0.005 : 0;
  e.sequence_parallel = false;
  e.waits_for_messages = true;
  e.scattered_messages = true;  // pipe_partitioned
  e.narrow_gradients = true;
}

void as_torchtitan(Engine& e, int year) {
  e.attention = attention_in(year, 2023, 2024, 2025);
  e.pass_bytes = year >= 2025 ? passes_compiled : passes_one_by_one;
  e.loss_bytes = year >= 2025 ? loss_compiled : loss_of_autocast;
  e.tensor_hidden = year >= 2025 ? 0.5 : 0;
}

void as_fsdp(Engine& e, int year) {
  e.attention = attention_in(year, 2023, 2024, 2025);
  e.pass_bytes = year >= 2024 ? passes_compiled : passes_one_by_one;
  e.loss_bytes = year >= 2024 ? loss_compiled : loss_of_autocast;
  e.narrow_gradients = true;
}

}  // namespace

Engine engine_of(EngineName name, int year) {
  Engine e;
  e.name = name;
  e.year = year;
  const int y = year == 0 ? 9999 : year;
  if (name == EngineName::megatron) as_megatron(e, y);
  if (name == EngineName::deepspeed) as_deepspeed(e, y);
  if (name == EngineName::torchtitan) as_torchtitan(e, y);
  if (name == EngineName::fsdp2) as_fsdp(e, y);
  // Since MegaScale, hosts that take a tenth longer have been detected and removed (Jiang et al. 2024, section 5.1).
  // The share is fitted to the slowdown of the 530 G runs of Narayanan et al. (2,520 GPUs) relative to those of
  // Korthikanti et al. (280).
  if (y < 2024) e.slow_nodes = 0.005;
  return e;
}

std::string text_of(const Engine& engine) {
  return concat(word_of(engine.name), engine.year > 0 ? concat(" of ", engine.year) : "");
}

bool has_schedule(EngineName engine, std::string_view schedule) {
  switch (engine) {
    case EngineName::megatron:
      return schedule == "1f1b" || schedule == "interleaved_1f1b";
    case EngineName::deepspeed:
    case EngineName::fsdp2:
      return schedule == "1f1b";
    default:
      return true;
  }
}

bool has_strategy(EngineName engine, Strategy strategy, int pp) {
  switch (engine) {
    case EngineName::megatron:  // zero1: --use-distributed-optimizer
      return strategy == Strategy::ddp || strategy == Strategy::zero1;
    case EngineName::deepspeed:  // its pipelines support at most ZeRO-1
      return pp == 1 ? strategy != Strategy::shard_grad_op : strategy == Strategy::ddp || strategy == Strategy::zero1;
    case EngineName::torchtitan:
    case EngineName::fsdp2:
      return strategy != Strategy::zero1 && strategy != Strategy::zero2;
    default:
      return true;
  }
}

bool cuts_models(EngineName engine) { return engine != EngineName::fsdp2; }

double attention_share(const Device& d, AttentionKernel kernel) {
  if (kernel == AttentionKernel::newest) return d.attention;
  // FlashAttention reached 25 to 40 % of an A100's peak, FlashAttention-2 50 to 73 % (Dao 2023, section 4.1); both use
  // the A100's product instructions, which reach a smaller share of later devices' peak (Shah et al. 2024, section 1:
  // 35 % of an H100's for FlashAttention-2).
  const double of_ampere = kernel == AttentionKernel::flash1 ? 0.33 : 0.57;
  return of_ampere * d.older_products;
}

}  // namespace tessera::plan
