#include <tessera/config/accelerate/accelerate_sections.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/hf/fsdp_config.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace tessera::config {
namespace {

constexpr std::string_view deepspeed = "deepspeed_config", megatron = "megatron_lm_config",
                           mesh_section = "parallelism_config";

std::string full_name(std::string_view section, std::string_view key) {
  const std::string_view prefix = accelerate_prefix(section);
  return key.starts_with(prefix) ? std::string(key) : concat(prefix, key);
}

/// Reads a size of the mesh; sets `setting` if it is above 1.
std::int64_t divided(const AccelerateSections& s, std::string_view section, std::string_view key,
                     std::string_view setting) {
  const auto size = s.whole(section, key, 1, 4096);
  if (size && *size > 1)
    s.to.give(setting, full_name(section, key), std::to_string(*size), s.find(section, key)->where());
  return size.value_or(1);
}

void context_strategy(const AccelerateSections& s) {
  const auto word = s.word(mesh_section, "cp_comm_strategy");
  if (!word) return;
  const Value& value = *s.find(mesh_section, "cp_comm_strategy");
  if (*word != "allgather" && *word != "alltoall")
    return s.to.problem(
        value.where(),
        concat("parallelism_config_cp_comm_strategy must be one of allgather, alltoall, not '", *word, "'"),
        {"cp_comm_type"});
  s.to.give("cp_comm_type", "parallelism_config_cp_comm_strategy",
            std::string(*word == "allgather" ? "all_gather" : "p2p"), value.where());
}

/// Sets `setting` to the key's value unless it is "auto" (DeepSpeed: filled in elsewhere) or empty.
void give_unless_auto(const AccelerateSections& s, std::string_view section, std::string_view key,
                      std::string_view setting) {
  const Value* value = s.find(section, key);
  if (value == nullptr || means_nothing(*value)) return;
  if (value->is_string() && to_lower(trim(value->as_string())) == "auto") return;
  s.to.give(setting, full_name(section, key), *value);
}

/// Reads the device of offloaded optimizer states or parameters: none, cpu or nvme.
std::optional<std::string> offload_device(const AccelerateSections& s, std::string_view key) {
  const auto word = s.word(deepspeed, key);
  if (!word || *word == "cpu" || *word == "nvme") return word;
  const auto near = nearest(*word, std::array<std::string, 3>{"none", "cpu", "nvme"});
  s.to.problem(s.find(deepspeed, key)->where(),
               concat(key, " must be one of none, cpu, nvme, not '", *word, "'",
                      near ? concat(" (did you mean ", *near, "?)") : ""),
               {"cpu_offload"});
  return std::nullopt;
}

void nvme_folder(const AccelerateSections& s, std::string_view path_key, const std::optional<std::string>& device) {
  const Value* path = s.find(deepspeed, path_key);
  if (path == nullptr || means_nothing(*path)) return;
  if (device == "nvme") return s.to.give("offload_folder", std::string(path_key), *path);
  s.to.ignored(*path, std::string(path_key), "the device is not nvme");
}

void deepspeed_offload(const AccelerateSections& s, std::int64_t stage) {
  const auto optimizer = offload_device(s, "offload_optimizer_device");
  auto parameters = offload_device(s, "offload_param_device");
  if (parameters && stage < 3) {
    s.to.ignored(*s.find(deepspeed, "offload_param_device"), "offload_param_device",
                 concat("zero_stage ", stage, " does not shard parameters; zero_stage 3 does"));
    parameters.reset();
  }
  if (optimizer || parameters) {
    const char* key = parameters ? "offload_param_device" : "offload_optimizer_device";
    const char* place = optimizer && parameters ? "all" : parameters ? "params" : "optimizer";
    s.to.give("cpu_offload", key, std::string(place), s.find(deepspeed, key)->where());
  }
  nvme_folder(s, "offload_optimizer_nvme_path", optimizer);
  nvme_folder(s, "offload_param_nvme_path", parameters);
}

void megatron_recompute(const AccelerateSections& s) {
  const Value* granularity = s.find(megatron, "recompute_granularity");
  const auto word = s.word(megatron, "recompute_granularity");
  const Value* switched = s.find(megatron, "recompute_activations");
  const bool attention = s.flag(megatron, "recompute_activations").value_or(false);
  if (word && *word != "full" && *word != "selective")
    return s.to.problem(granularity->where(),
                        concat("megatron_lm_recompute_granularity must be one of full, selective, not '", *word, "'"),
                        {"gradient_checkpointing"});
  if (word == "full" && attention)
    return s.to.problem(switched->where(),
                        concat("megatron_lm_recompute_activations recomputes only attention, but "
                               "megatron_lm_recompute_granularity full on line ",
                               granularity->where().line, " recomputes whole blocks: keep one of them"),
                        {"gradient_checkpointing"});
  if (!word && !attention) return;
  const Value& from = attention ? *switched : *granularity;
  const std::string key = attention ? "megatron_lm_recompute_activations" : "megatron_lm_recompute_granularity";
  s.to.give("gradient_checkpointing", key, std::string("true"), from.where());
  if (word != "full") s.to.give("gradient_checkpointing_kwargs", key, std::string("part=attention"), from.where());
}

/// Removes the setting from the translation and returns it.
std::optional<FileSetting> taken(Translation& from, std::string_view name) {
  const auto found = std::find_if(from.settings.begin(), from.settings.end(),
                                  [&](const FileSetting& setting) { return setting.name == name; });
  if (found == from.settings.end()) return std::nullopt;
  FileSetting setting = std::move(*found);
  from.settings.erase(found);
  return setting;
}

/// Replaces fsdp_config's strategy by its hybrid form, which replicates across groups. Returns false after reporting a
/// problem.
bool hybrid(const AccelerateSections& s, const AccelerateMesh& mesh, Translation& fsdp) {
  if (mesh.parts() == 1) {
    s.to.problem(mesh.replicate_from->where(),
                 concat("parallelism_config_dp_replicate_size ", mesh.replicate,
                        " with dp_shard_size 1 shards nothing, which contradicts distributed_type FSDP: set "
                        "dp_shard_size, or use distributed_type MULTI_GPU"),
                 {"strategy"});
    return false;
  }
  RunConfig named;
  named.sharding.strategy = Strategy::full_shard;
  if (const auto strategy = taken(fsdp, "strategy")) {
    find_field("strategy")->set(named, strategy->text);
    if (named.sharding.strategy == Strategy::ddp) {
      s.to.problem(strategy->where,
                   concat(strategy->key, " ", strategy->text, " shards nothing, but parallelism_config_dp_shard_size",
                          mesh.context > 1 ? " x cp_size is " : " is ", mesh.parts(), ": keep one of them"),
                   {"strategy"});
      return false;
    }
  }
  const auto reshard = taken(fsdp, "reshard_after_forward");
  const bool keeps_whole = (reshard && parse_bool(reshard->text) == false) ||
                           named.sharding.strategy == Strategy::shard_grad_op ||
                           named.sharding.strategy == Strategy::hybrid_shard_zero2;
  s.to.give("strategy", "parallelism_config_dp_replicate_size",
            std::string(keeps_whole ? "hybrid_shard_zero2" : "hybrid_shard"), mesh.replicate_from->where());
  s.to.give("shard_group_size",
            mesh.shard_from != nullptr ? "parallelism_config_dp_shard_size" : "parallelism_config_cp_size",
            std::to_string(mesh.parts()),
            (mesh.shard_from != nullptr ? mesh.shard_from : mesh.replicate_from)->where());
  return true;
}

}  // namespace

std::optional<std::int64_t> AccelerateSections::whole(std::string_view section, std::string_view key,
                                                      std::int64_t least, std::int64_t most) const {
  const Value* value = find(section, key);
  if (value == nullptr || means_nothing(*value)) return std::nullopt;
  const auto text = as_text(*value, true);
  const auto number = text && !value->is_array() ? parse_int(*text) : std::nullopt;
  if (number && *number >= least && *number <= most) return number;
  to.problem(value->where(), concat(full_name(section, key), " must be a whole number from ", least, " to ", most,
                                    text ? concat(", not '", *text, "'") : ""));
  return std::nullopt;
}

std::optional<bool> AccelerateSections::flag(std::string_view section, std::string_view key) const {
  const Value* value = find(section, key);
  if (value == nullptr || means_nothing(*value)) return std::nullopt;
  const auto text = as_text(*value, false);
  const auto parsed = text && !value->is_array() ? parse_bool(*text) : std::nullopt;
  if (!parsed)
    to.problem(value->where(),
               concat(full_name(section, key), " must be true or false", text ? concat(", not '", *text, "'") : ""));
  return parsed;
}

std::optional<std::string> AccelerateSections::word(std::string_view section, std::string_view key) const {
  const Value* value = find(section, key);
  if (value == nullptr || means_nothing(*value)) return std::nullopt;
  const auto text = as_text(*value, true);
  if (text && !value->is_array()) return to_lower(*text);
  to.problem(value->where(), concat(full_name(section, key), " must be one word"));
  return std::nullopt;
}

AccelerateMesh accelerate_mesh(const AccelerateSections& s, std::int64_t num_processes) {
  constexpr std::int64_t most = 4096;
  const std::int64_t tp = divided(s, mesh_section, "tp_size", "tp_size");
  const std::int64_t sp = s.whole(mesh_section, "sp_size", 1, most).value_or(1);
  const std::int64_t cp = divided(s, mesh_section, "cp_size", "cp_size");
  if (cp > 1 && sp > 1)
    s.to.problem(s.find(mesh_section, "sp_size")->where(),
                 concat("parallelism_config_sp_size ", sp, " and parallelism_config_cp_size ", cp,
                        " both divide the sequence: keep one of them"),
                 {"cp_size"});
  else if (sp > 1) {
    divided(s, mesh_section, "sp_size", "cp_size");
    s.to.give("cp_comm_type", "parallelism_config_sp_size", std::string("a2a"),
              s.find(mesh_section, "sp_size")->where());
  }
  if (cp > 1) context_strategy(s);
  AccelerateMesh mesh;
  mesh.context = cp > 1 ? cp : sp;
  mesh.replicate_from = s.find(mesh_section, "dp_replicate_size");
  mesh.shard_from = s.find(mesh_section, "dp_shard_size");
  mesh.replicate = s.whole(mesh_section, "dp_replicate_size", 1, 1 << 20).value_or(1);
  mesh.shard = s.whole(mesh_section, "dp_shard_size", 1, 1 << 20).value_or(1);
  const double product = double(mesh.replicate) * double(mesh.parts()) * double(tp);
  if (product > 1 && num_processes > 0 && product != double(num_processes) && (cp == 1 || sp == 1)) {
    std::vector<std::string> sizes;
    const Value* first = nullptr;
    for (const char* key : {"dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size"}) {
      const bool data = std::string_view(key).starts_with("dp_");
      const std::int64_t size = s.whole(mesh_section, key, 1, 1 << 20).value_or(1);
      if (size > 1 && first == nullptr) first = s.find(mesh_section, key);
      if (size > 1 || (data && mesh.replicate * mesh.shard > 1))
        sizes.push_back(concat("parallelism_config_", key, " ", size));
    }
    s.to.problem(first->where(),
                 concat(join(sizes, " x "), sizes.size() == 1 ? " is " : " are ", format_real(product),
                        " processes, but num_processes is ", num_processes, ": make them agree"),
                 {"shard_group_size", "num_processes", "tp_size", "cp_size"});
  }
  return mesh;
}

void translate_accelerate_fsdp(const AccelerateSections& s, const AccelerateMesh& mesh) {
  const Value* type = s.find("", "distributed_type");
  Value section = Value::make_object();
  if (const Value* given = s.find("", "fsdp_config")) {
    section.set_where(given->where());
    for (const auto& [key, value] : given->members())
      if (!key.ends_with("activation_checkpointing_offload")) section.set(key, value);
  }
  Translation fsdp = read_fsdp_section(section, s.problems);
  s.notes.insert(s.notes.end(), fsdp.notes.begin(), fsdp.notes.end());
  if (s.flag("fsdp_config", "fsdp_activation_checkpointing_offload").value_or(false)) {
    const std::string key = "fsdp_activation_checkpointing_offload";
    s.to.ignored(*s.find("fsdp_config", key), key, Translator::find(accelerate_keys(), "fsdp_config", key)->why);
  }
  if (mesh.replicate > 1 && !hybrid(s, mesh, fsdp)) return;
  for (const FileSetting& setting : fsdp.settings) s.to.give(setting.name, setting.key, setting.text, setting.where);
  if (!s.to.given("strategy") && !s.problems.doubtful.contains("strategy"))
    s.to.give("strategy", "distributed_type", std::string("full_shard"), type->where());
}

void translate_accelerate_deepspeed(const AccelerateSections& s) {
  if (const Value* file = s.find(deepspeed, "deepspeed_config_file"); file != nullptr && !means_nothing(*file)) {
    const std::string path = as_text(*file, false).value_or("");
    const std::string beside =
        file->where().line > 0 ? (std::filesystem::path(*file->where().file).parent_path() / path).string() : path;
    if (!path_exists(path) && path_exists(beside))
      s.to.give("deepspeed", "deepspeed_config_file", beside, file->where());
    else
      s.to.give("deepspeed", "deepspeed_config_file", *file);
    // accelerate/utils/dataclasses.py, DeepSpeedPlugin: an error if given together with a file
    for (const char* key : {"zero_stage", "gradient_accumulation_steps", "gradient_clipping",
                            "offload_optimizer_device", "offload_param_device", "zero3_save_16bit_model"})
      if (const Value* value = s.find(deepspeed, key))
        s.to.problem(value->where(),
                     concat(key, " is given with deepspeed_config_file, which contains it: remove it here"));
    if (const Value* value = s.find("", "mixed_precision");
        value != nullptr && value->where().line > 0 && !means_no(*value))
      s.to.problem(
          value->where(),
          "mixed_precision is given with deepspeed_config_file, which contains it (bf16, fp16): remove it here");
    return;
  }
  const auto stage = s.whole(deepspeed, "zero_stage", 0, 3);
  if (const Value* value = s.find(deepspeed, "zero_stage"); value != nullptr && !means_nothing(*value)) {
    if (stage) s.to.give("zero_stage", "zero_stage", *value);
  } else {
    const Value* from = s.find("", deepspeed);
    if (from == nullptr) from = s.find("", "distributed_type");
    s.to.give("zero_stage", "zero_stage (unless given)", std::string("2"), from->where());
  }
  give_unless_auto(s, deepspeed, "gradient_accumulation_steps", "gradient_accumulation_steps");
  give_unless_auto(s, deepspeed, "gradient_clipping", "max_grad_norm");
  deepspeed_offload(s, stage.value_or(2));
}

void translate_accelerate_megatron(const AccelerateSections& s) {
  const std::int64_t ep = divided(s, megatron, "expert_model_parallel_size", "ep_size");
  // accelerate's files always contain it, 1 by default; without ep it has no effect
  constexpr std::string_view within = "expert_tensor_parallel_size";
  if (const auto etp = s.whole(megatron, within, 1, 4096); etp && (ep > 1 || *etp > 1))
    s.to.give("etp_size", full_name(megatron, within), std::to_string(*etp), s.find(megatron, within)->where());
  const std::int64_t pp = divided(s, megatron, "pp_degree", "pp_size");
  if (const auto last = s.whole(megatron, "decoder_last_pipeline_num_layers", 0, 1 << 20)) {
    const Value& value = *s.find(megatron, "decoder_last_pipeline_num_layers");
    if (pp > 1)
      s.to.problem(value.where(),
                   concat("megatron_lm_decoder_last_pipeline_num_layers ", *last,
                          ": remove it, and define each stage's blocks with --pipeline_layout"),
                   {"pipeline_layout"});
    else
      s.to.ignored(value, "megatron_lm_decoder_last_pipeline_num_layers",
                   "it is for pipeline parallelism, whose size is 1");
  }
  const std::int64_t tp = divided(s, megatron, "tp_degree", "tp_size");
  divided(s, megatron, "context_parallel_size", "cp_size");
  if (const auto cut = s.flag(megatron, "sequence_parallelism"); cut == true) {
    const Value& value = *s.find(megatron, "sequence_parallelism");
    if (tp > 1)
      s.to.give("sequence_parallel", "megatron_lm_sequence_parallelism", value);
    else
      s.to.ignored(value, "megatron_lm_sequence_parallelism", "it is for tensor parallelism, whose size is 1");
  }
  give_unless_auto(s, megatron, "num_micro_batches", "gradient_accumulation_steps");
  give_unless_auto(s, megatron, "gradient_clipping", "max_grad_norm");
  give_unless_auto(s, megatron, "no_save_optim", "save_only_model");
  give_unless_auto(s, megatron, "calculate_per_token_loss", "average_tokens_across_devices");
  const auto strategy = [&](const char* key, const char* word) {
    if (!s.flag(megatron, key).value_or(false) || s.to.given("strategy")) return;
    s.to.give("strategy", full_name(megatron, key), std::string(word), s.find(megatron, key)->where());
  };
  strategy("use_custom_fsdp", "full_shard");
  strategy("use_distributed_optimizer", "zero1");
  if (s.flag(megatron, "optimizer_cpu_offload").value_or(false))
    s.to.give("cpu_offload", "megatron_lm_optimizer_cpu_offload", std::string("optimizer"),
              s.find(megatron, "optimizer_cpu_offload")->where());
  megatron_recompute(s);
}

}  // namespace tessera::config
