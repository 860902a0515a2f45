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

/// Kernels of attention that an engine's releases of a year have.
AttentionKernel attention_in(int year, int flash1, int flash2, int newest) {
  return year >= newest   ? AttentionKernel::newest
         : year >= flash2 ? AttentionKernel::flash2
         : year >= flash1 ? AttentionKernel::flash1
                          : AttentionKernel::scores_in_memory;
}

}  // namespace

Engine engine_of(EngineName name, int year) {
  Engine e;
  e.name = name;
  e.year = year;
  const int y = year == 0 ? 9999 : year;
  switch (name) {
    case EngineName::tessera:
      break;
    case EngineName::megatron:
      e.attention = attention_in(y, 2023, 2024, 2025);
      e.pass_bytes = 1.5;
      e.loss_bytes = y >= 2025 ? 14 : 46;
      e.tensor_hidden = y >= 2025 ? 0.7 : y >= 2024 ? 0.5 : 0;
      e.sequence_parallel = y >= 2022;
      e.waits_for_messages = y < 2024;
      e.scattered_messages = true;
      e.narrow_gradients = y >= 2024;
      break;
    case EngineName::deepspeed:
      e.attention = attention_in(y, 2023, 2024, 2025);
      e.pass_bytes = 1.5;
      e.loss_bytes = 46;
      e.host_seconds = y <= 2022 ? 0.005 : 0;
      e.sequence_parallel = false;
      e.waits_for_messages = true;
      e.scattered_messages = true;
      break;
    case EngineName::torchtitan:
      e.attention = attention_in(y, 2023, 2024, 2025);
      e.pass_bytes = y >= 2025 ? 1.3 : 1.9;
      e.loss_bytes = y >= 2025 ? 16 : 28;
      e.tensor_hidden = y >= 2025 ? 0.5 : 0;
      e.narrow_gradients = false;
      break;
    case EngineName::fsdp2:
      e.attention = attention_in(y, 2023, 2024, 2025);
      e.pass_bytes = y >= 2024 ? 1.3 : 1.9;
      e.loss_bytes = y >= 2024 ? 16 : 28;
      e.sequence_parallel = true;
      e.narrow_gradients = true;
      break;
  }
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
    case EngineName::deepspeed:  // its pipelines go with ZeRO-1 at most
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
  // the instructions for products that an A100 has, of which later devices reach less than of their own (Shah et al.
  // 2024, section 1: 35 % of an H100's peak for FlashAttention-2).
  const double of_ampere = kernel == AttentionKernel::flash1 ? 0.33 : 0.57;
  return of_ampere * d.older_products;
}

}  // namespace tessera::plan
