/// \file
/// tessera plan check FILE...|settings: predicts what a run will need, and whether it fits, before it is started.

#include <tessera/base/error.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/plan/from_config.h>
#include <tessera/plan/megatron.h>
#include <tessera/plan/sure.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/config_command.h>
#include <tools/tessera/plan_output.h>
#include <tools/tessera/take_flag.h>
#include <tools/tessera/tuning/memory_check.h>

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace tessera::tool {
namespace {

using plan::Candidate;
using plan::Question;

constexpr const char* check_help =
    "tessera plan check [FILE] --gpus 8xH100 [settings of tessera train]\n\n"
    "Memory by kind on the rank that needs most, and the step time, of a run as it\n"
    "would be started: FILE and settings as for `tessera config show` (our YAML,\n"
    "accelerate's, DeepSpeed's JSON, TrainingArguments). Exit code 1: it does not fit.\n\n"
    "  --gpus CLUSTER    the devices [num_processes x CPU]\n"
    "  --memory GB       memory limit per device [94 % of its memory]\n"
    "  --engine ENGINE   the program to predict, with the same settings: tessera,\n"
    "                    megatron (including its tensors: Transformer Engine in bf16),\n"
    "                    deepspeed, torchtitan or fsdp2 (times; tensors as ours)\n"
    "  --engine_year N   version of that program in year N [the newest known]\n"
    "  --fused_loss      with --engine megatron: --cross-entropy-fusion-impl te\n"
    "  --json            prints JSON\n";

/// The candidate with the memory that Megatron-LM would need.
Candidate of_megatron(const Question& q, plan::Plan plan, bool fused_loss) {
  std::vector<plan::Memory> ranks = megatron_memory(q.model, plan, {.fused_loss = fused_loss});
  const std::vector<plan::Memory> ours = memory_of_ranks(q, plan);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    ranks[r][plan::MemoryKind::process] += ours[r][plan::MemoryKind::process];
  Candidate c = evaluate(q, std::move(plan));
  std::tie(c.memory, c.rank) = largest(ranks);
  return c;
}

}  // namespace

int plan_check_command(const Arguments& given) {
  Arguments arguments = given;
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end() || arguments.empty()) {
    std::fputs(check_help, arguments.empty() ? stderr : stdout);
    return arguments.empty() ? 2 : 0;
  }
  const auto taken = [&](const char* name) { return take_flag(arguments, "tessera plan check", name); };
  const auto gpus = taken("gpus"), memory = taken("memory"), engine = taken("engine"), year = taken("engine_year");
  const bool json = take_switch(arguments, "json"), fused_loss = take_switch(arguments, "fused_loss");
  const plan::Engine whose = engine_of_words(engine, year);
  const bool megatron = whose.name == plan::EngineName::megatron, ours = whose.name == plan::EngineName::tessera;
  if (fused_loss && !megatron) throw InputError("--fused_loss is a setting of --engine megatron");
  config::Problems problems;
  const config::Resolved resolved = resolve_arguments(arguments, /*environment=*/false, problems);
  throw_if_any(problems);
  RunConfig config = resolved.values;
  Question q;
  const std::int64_t processes = std::max<std::int64_t>(1, config.parallel.num_processes);
  q.cluster = plan::parse_cluster(gpus ? *gpus : concat(processes, "xCPU/", processes));
  if (gpus && config.parallel.num_processes > 0 && config.parallel.num_processes != q.cluster.devices)
    throw InputError(concat("--gpus ", *gpus, " has ", q.cluster.devices, " devices, and num_processes is ",
                            config.parallel.num_processes, "; remove one of them"));
  q.model = plan::model_of(config);
  plan::Plan plan = plan_of(config, q.model, q.cluster);
  if (!ours) {
    if (q.cluster.on_cpu)
      throw InputError(concat("--engine ", *engine, " needs GPUs: use --gpus, for example --gpus 8xH100"));
    q.engine = plan.engine = whose;
    plan.numerics = engine_numerics(whose);
    plan.sequence_parallel = plan.sequence_parallel && whose.sequence_parallel;
  }
  q.sequence = plan.sequence;
  q.global_batch = plan.rows * plan.micro_batches * plan.dp();
  q.precision = plan.precision;
  q.memory_limit = 0.94 * q.cluster.device.memory;
  if (memory) {
    const auto gb = parse_real(*memory);
    if (!gb || !(*gb > 0 && *gb <= 1e6))
      throw InputError(concat("--memory ", *memory, ": expected gigabytes, above 0"));
    q.memory_limit = *gb * 1e9;
  }
  const Candidate c = megatron ? of_megatron(q, std::move(plan), fused_loss) : evaluate(q, std::move(plan));
  const bool fits = c.memory.total() <= q.memory_limit;
  if (json) {
    Value value = value_of(c, q);
    value.set("allocated_bytes", Value::of(c.memory.allocated()));
    if (c.plan.on_cpu)
      value.set("host_bytes",
                Value::of(bytes_on_host(memory_of_ranks(q, c.plan), std::min(q.cluster.devices, q.cluster.per_node))));
    value.set("fits", Value::of(fits));
    value.set("engine", Value::of(word_of(whose.name)));
    value.set("median_error", Value::of(plan::sureness(q.cluster, q.engine).median));
    if (!ours) value.set("against_tessera", Value::of(against_ours(q, c)));
    value.set("memory_limit", Value::of(q.memory_limit));
    std::printf("%s\n", dump_json(value, 2, 9).c_str());
    return fits ? 0 : 1;
  }
  std::printf("%s on %s: %s\n", q.model.name.c_str(), q.cluster.text.c_str(), text_of(c.plan).c_str());
  print_parts(c);
  std::printf("  %s tokens/s, %.1f %% of the peak (MFU); %s\n\n", format_count(c.tokens_per_second).c_str(),
              100 * c.utilization, limit_of(q, c).c_str());
  if (!ours) std::printf("%s\n\n", against_ours(q, c).c_str());
  if (fits) {
    std::printf("fits%s: %s of %s\n", megatron ? " in Megatron-LM" : "", gigabytes(c.memory.total()).c_str(),
                gigabytes(q.memory_limit).c_str());
    return 0;
  }
  if (megatron)  // no remedy is searched for among another engine's settings
    std::printf("does not fit in Megatron-LM: %s of %s\n", gigabytes(c.memory.total()).c_str(),
                gigabytes(q.memory_limit).c_str());
  else
    std::printf("%s\n", does_not_fit(q, c).c_str());
  return 1;
}

}  // namespace tessera::tool
