// The writers of our own file, accelerate's YAML and TrainingArguments.

#include <tessera/base/text.h>
#include <tessera/config/convert/convert_writers.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/resolve/resolve.h>

#include <algorithm>

namespace tessera::config {
namespace {

std::string_view mixed_precision(const RunConfig& config) {
  return config.optimization.bf16 ? "bf16" : config.optimization.fp16 ? "fp16" : "no";
}

/// parallelism_config: tensor and context parallelism, and replicas of a hybrid strategy as sizes if they are known;
/// null if the strategy's name is enough, or if there is a pipeline, which the section does not support, so its sizes
/// would not multiply to the number of processes. Takes the settings it writes.
Value mesh_section(Plan& plan) {
  const ParallelConfig& p = plan.config.parallel;
  const ShardingConfig& s = plan.config.sharding;
  if (p.pp_size > 1) return {};
  const std::int64_t processes = p.num_processes, group = s.shard_group_size, ranks = processes / p.tp_size;
  const bool copies = row_of(s.strategy).shard_group == ShardGroup::host && group > 0 && ranks % group == 0 &&
                      group % p.cp_size == 0 && ranks > group;
  const bool cuts = ranks_per_sample(p) > 1;
  if (!copies && !cuts) return {};
  Value section = Value::make_object();
  const auto size = [&](const char* key, std::int64_t value) {
    section.set(concat("parallelism_config_", key), Value::of(value));
  };
  const bool shards = row_of(s.strategy).shard_group != ShardGroup::none;
  const std::int64_t dp = processes > 0 ? data_parallel_ranks(p, processes) : 1;
  if (copies || processes > 0) {
    size("dp_replicate_size", copies ? ranks / group : shards ? 1 : dp);
    size("dp_shard_size", copies ? group / p.cp_size : shards ? dp : 1);
  }
  if (copies) plan.take("shard_group_size");
  if (!cuts) return section;
  plan.take("tp_size");
  size("tp_size", p.tp_size);
  if (p.cp_size == 1) return section;
  using enum layout::ContextMethod;
  plan.take("cp_size");
  size(p.cp_comm_type == a2a ? "sp_size" : "cp_size", p.cp_size);
  if (p.cp_comm_type == a2a_p2p) return section;  // not supported by accelerate
  plan.take("cp_comm_type");
  if (p.cp_comm_type != a2a)
    section.set("parallelism_config_cp_comm_strategy", Value::of(p.cp_comm_type == p2p ? "alltoall" : "allgather"));
  return section;
}

/// The fields of accelerate's deepspeed_config, without a JSON file.
Value deepspeed_section(Plan& plan) {
  const ShardingConfig& sharding = plan.config.sharding;
  const bool optimizer = offloads_optimizer(sharding.cpu_offload), params = offloads_parameters(sharding.cpu_offload);
  plan.take("strategy");
  plan.take("cpu_offload");
  plan.take("gradient_accumulation_steps");
  plan.take("max_grad_norm");
  return Value::make_object({{"gradient_accumulation_steps", plan.value("gradient_accumulation_steps")},
                             {"gradient_clipping", plan.value("max_grad_norm")},
                             {"offload_optimizer_device", Value::of(optimizer ? "cpu" : "none")},
                             {"offload_param_device", Value::of(params ? "cpu" : "none")},
                             {"zero3_init_flag", Value::of(false)},
                             {"zero_stage", Value::of(row_of(sharding.strategy).zero_stage())}});
}

}  // namespace

Converted to_tessera(const Resolved& resolved) {
  Plan plan(resolved);
  Value file = Value::make_object();
  for (const Section section : all_sections) {
    Value members = Value::make_object();
    for (const auto& [name, text] : plan.left())
      if (const Field* field = find_field(name); field->section == section)
        members.set(name, field->get(resolved.values));
    if (!members.members().empty()) file.set(std::string(section_key(section)), std::move(members));
  }
  return {std::move(file), {}};
}

Converted to_accelerate(const Resolved& resolved) {
  Plan plan(resolved);
  const RunConfig& config = resolved.values;
  const bool several = config.parallel.num_processes > 1, cpu = config.device == Device::cpu;
  std::string type = several ? (cpu ? "MULTI_CPU" : "MULTI_GPU") : "NO";
  Value file = Value::make_object();
  const Value mesh = mesh_section(plan);
  if (!mesh.is_null()) file.set("parallelism_config", sorted(mesh));
  if (speaks_deepspeed(config)) {
    type = "DEEPSPEED";
    file.set("deepspeed_config", sorted(deepspeed_section(plan)));
  } else if (row_of(config.sharding.strategy).shard_parameters) {
    type = "FSDP";
    const Value* replicas = mesh.is_null() ? nullptr : mesh.find("parallelism_config_dp_replicate_size");
    file.set("fsdp_config", sorted(fsdp_section(plan, true, replicas != nullptr && replicas->as_int() > 1)));
  }
  file.set("compute_environment", Value::of("LOCAL_MACHINE"));
  file.set("debug", Value::of(false));
  file.set("distributed_type", Value::of(type));
  file.set("downcast_bf16", Value::of("no"));
  file.set("enable_cpu_affinity", Value::of(false));
  file.set("machine_rank", Value::of(0));
  file.set("main_training_function", Value::of("main"));
  plan.take("bf16");
  plan.take("fp16");
  file.set("mixed_precision", Value::of(std::string(mixed_precision(config))));
  file.set("num_machines", Value::of(1));
  if (config.device == Device::xla) {
    file.set("xla", Value::of(true));
    plan.take("device");
    plan.take("num_processes");
    if (plan.take("xla_devices")) file.set("num_processes", Value::of(config.parallel.xla_devices));
    if (plan.take("gradient_checkpointing"))
      file.set("xla_fsdp_grad_ckpt", Value::of(config.optimization.gradient_checkpointing));
  }
  if (plan.take("num_processes")) file.set("num_processes", Value::of(config.parallel.num_processes));
  if (plan.take("main_process_port")) file.set("main_process_port", Value::of(config.parallel.main_process_port));
  file.set("rdzv_backend", Value::of("static"));
  file.set("same_network", Value::of(true));
  // accelerate has no key for GPUs: it uses all that are present, as auto does
  file.set("use_cpu", Value::of(cpu));
  if (config.device != Device::cuda && config.device != Device::xla) plan.take("device");
  return {sorted(file), plan.lost("accelerate's file has no key for it")};
}

}  // namespace tessera::config
