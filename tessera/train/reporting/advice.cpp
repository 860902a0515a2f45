#include <tessera/train/reporting/advice.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include <tessera/base/plural.h>
#include <tessera/base/text.h>

namespace tessera::train {
namespace {

constexpr double much_memory = 0.85, much_time = 0.2;
constexpr double idle_threads = 0.7, low_flops = 0.4;
constexpr std::int64_t small_micro_batch = 8, few_steps = 5;  // the first steps warm up caches and pools

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

double total(const Utilization& run) { return std::accumulate(run.seconds.begin(), run.seconds.end(), 0.0); }

std::string size(std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

Advice memory_advice(const Utilization& run) {
  const std::string need = concat(run.local_ranks, run.local_ranks == 1 ? " process needs " : " processes need ",
                                  size(run.peak_bytes * run.local_ranks), " of the host's ", size(run.machine_bytes));
  const bool activations = 2 * run.activation_bytes > run.peak_bytes;
  if (activations && run.micro_batch > 1)
    return {"memory-bound", concat(need, ", ", percent(static_cast<double>(run.activation_bytes) / run.peak_bytes),
                                   " of it activations: halve --per_device_train_batch_size (now ", run.micro_batch,
                                   ") and double --gradient_accumulation_steps; the losses stay the same")};
  if (run.local_ranks > 1)
    return {"memory-bound",
            concat(need, ": use fewer processes with more threads each, so that there are fewer copies of the model")};
  return {"memory-bound",
          concat(need, activations ? ": lower --block_size" : ": train with --lora_r or a smaller model",
                 ", or use a host with more memory")};
}

Advice input_advice(double share) {
  return {"input-bound", concat(percent(share),
                                " of the time goes into reading rows: tokenize the text once "
                                "(tessera tokenize) and train on the .bin file, or use a faster disk")};
}

Advice communication_advice(const Utilization& run, double share) {
  if (run.cut_axis == "pp")
    return {
        "communication-bound",
        concat(
            percent(share), " of the time is spent waiting for the other ", run.ranks - 1,
            run.ranks == 2 ? " process" : " processes",
            ", most of it along pp, where stages idle at the start and end of a step or take longer than others: raise "
            "--gradient_accumulation_steps (now ",
            run.accumulation,
            "), use a --pipeline_schedule with less bubble (zb_h1, zbv), or cut by cost "
            "(--pipeline_layout half_blocks, or flops)")};
  if (!run.cut_axis.empty())
    return {"communication-bound",
            concat(percent(share), " of the time is spent waiting for the other ", run.ranks - 1,
                   run.ranks == 2 ? " process" : " processes", ", most of it along ", run.cut_axis,
                   ", whose messages come with every layer: raise --per_device_train_batch_size (now ", run.micro_batch,
                   ") or --block_size, or lower --", run.cut_axis,
                   "_size and shard the model with --fsdp full_shard, which sends fewer messages")};
  if (run.gathers_parameters)
    return {"communication-bound",
            concat(percent(share), " of the time is spent waiting for the other ", run.ranks - 1,
                   run.ranks == 2 ? " process" : " processes", ": raise --per_device_train_batch_size (now ",
                   run.micro_batch,
                   "), which computes more per gather, or shard less (--zero_stage 2, --shard_group_size)")};
  return {"communication-bound",
          concat(percent(share), " of the time is spent waiting for the other ", run.ranks - 1,
                 run.ranks == 2 ? " process" : " processes", ": raise --gradient_accumulation_steps (now ",
                 run.accumulation, "), which reduces gradients less often",
                 run.local_ranks > 1 ? ", or use fewer processes with more threads each" : "")};
}

Advice overhead_advice(double share) {
  return {"overhead-bound", concat(percent(share),
                                   " of the time goes into logs, evaluations and checkpoints: raise "
                                   "--eval_steps, --save_steps or --logging_steps")};
}

Advice compute_advice(const Utilization& run, double share) {
  std::string why = concat(percent(share), " of the time goes into computing");
  if (run.cpu_utilization > 0) why += concat(", processors ", percent(run.cpu_utilization), " busy");
  if (run.flops_utilization > 0)
    why += concat(", ", percent(run.flops_utilization), " of the peak measured here for matrix products");
  if (run.steps < few_steps)
    return {"compute-bound",
            concat(why, "; ", plural(run.steps, "step"), run.steps == 1 ? " is" : " are", " too few for advice")};
  // A rank that waits for others does not lack work.
  const double steps = total(run) - at(run.seconds, Phase::other);
  const double working = steps > 0 ? 1 - at(run.seconds, Phase::communication) / steps : 1;
  const bool idle = run.cpu_utilization > 0 && run.cpu_utilization < idle_threads * working;
  const bool inefficient = run.flops_utilization > 0 && run.flops_utilization < low_flops;
  const std::int64_t threads = run.local_ranks * run.threads;
  if (idle && run.cores > 0 && threads > run.cores)
    return {"compute-bound",
            concat(why, ": ", threads, " threads share ", run.cores, run.cores == 1 ? " core" : " cores",
                   "; lower --num_processes or --threads_per_process")};
  if (idle && run.threads == 1)
    return {"compute-bound", concat(why, ": other programs use the cores; stop them or wait for them")};
  if (idle)
    return {"compute-bound", concat(why, ": ", run.threads,
                                    " threads per process have too little work; raise "
                                    "--per_device_train_batch_size (now ",
                                    run.micro_batch, ") or use more processes with fewer threads")};
  if (inefficient && run.micro_batch < small_micro_batch)
    return {"compute-bound",
            concat(why, ": larger matrices would help; raise --per_device_train_batch_size (now ", run.micro_batch, ")",
                   run.accumulation > 1 ? " and lower --gradient_accumulation_steps" : "")};
  return {"compute-bound", concat(why, inefficient ? ": the model's matrices are small; a wider model or longer blocks "
                                                     "would use the processor better, and more cores would train faster"
                                                   : ", as it should be; more cores or hosts would train faster")};
}

}  // namespace

Advice advise(const Utilization& run) {
  if (run.machine_bytes > 0 &&
      static_cast<double>(run.peak_bytes * run.local_ranks) > much_memory * static_cast<double>(run.machine_bytes))
    return memory_advice(run);
  const double all = total(run);
  if (!(all > 0)) return {"compute-bound", "nothing was measured"};
  const auto share = [&](Phase phase) { return at(run.seconds, phase) / all; };
  const double input = share(Phase::data), other = share(Phase::other);
  const double communication = run.ranks > 1 ? share(Phase::communication) : 0;
  const double most = std::max({input, communication, other});
  if (most > much_time) {
    if (most == communication) return communication_advice(run, most);
    return most == input ? input_advice(most) : overhead_advice(most);
  }
  return compute_advice(run, share(Phase::forward) + share(Phase::backward) + share(Phase::optimizer));
}

}  // namespace tessera::train
