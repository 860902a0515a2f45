#include <tessera/train/loop/batch_size.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <new>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/nn/allocator.h>
#include <tessera/train/loop/setup.h>

namespace tessera::train {

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const nn::OutOfMemory*>(&error) ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error))
    return true;
  // c10's CPU allocator throws no special type; oneDNN gives no reason if it cannot allocate a product's scratch memory
  static constexpr std::array texts = {"can't allocate memory", "not enough memory", "could not create a primitive",
                                       "could not execute a primitive"};
  const std::string text = error.what();
  return std::any_of(texts.begin(), texts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

bool fits_everywhere(const comm::Group& group, const std::function<void()>& probe) {
  bool fits = true;
  run_on_all_ranks(group, [&] {
    try {
      probe();
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      fits = false;
    }
  });
  return !comm::any_rank(group, !fits);
}

std::string halve_batch_size(OptimizationConfig& config) {
  std::int64_t& rows = config.per_device_train_batch_size;
  const std::int64_t before = rows, all = rows * config.gradient_accumulation_steps;
  if (rows == 1)
    throw Error(
        "--auto_find_batch_size: one row per process does not fit into memory; lower --block_size, add "
        "--gradient_checkpointing, or shard the model (--fsdp full_shard)");
  rows /= 2;
  while (all % rows != 0) --rows;
  config.gradient_accumulation_steps = all / rows;
  return concat("--auto_find_batch_size: ", before, " rows per process do not fit into memory; trying ", rows, " in ",
                config.gradient_accumulation_steps, " micro-batches, the same ", all, " rows per process and step");
}

void check_automatic_batch_size(const RunConfig& config, std::int64_t ranks) {
  if (!config.optimization.auto_find_batch_size) return;
  if (config.parallel.deterministic_reduce)
    throw InputError(
        "--auto_find_batch_size contradicts --deterministic_reduce: the micro-batches determine the order of the sums; "
        "set --per_device_train_batch_size yourself");
  const Strategy strategy = config.sharding.strategy;
  if (ranks > 1 && row_of(strategy).shard_gradients)
    throw InputError(
        concat("--auto_find_batch_size: with the strategy ", strategy, " over ", ranks,
               " processes, forward and backward are collective, and a process that runs out of memory would leave the "
               "others waiting; use ddp or zero1, or set --per_device_train_batch_size yourself"));
}

}  // namespace tessera::train
