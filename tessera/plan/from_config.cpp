#include <tessera/plan/from_config.h>

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/presets.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/named_model.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/core/run_schedule.h>
#include <tessera/config/model/vision_config.h>
#include <tessera/config/rules/checkpointing.h>
#include <tessera/config/rules/lora_modules.h>
#include <tessera/config/rules/optimizer_states.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/plan/adapters.h>
#include <tessera/plan/presets.h>
#include <tessera/plan/recorded.h>

#include <algorithm>

namespace tessera::plan {

namespace schedule = layout::schedule;

namespace {

/// The name of the region of a block that contains a tensor: "model.layers.3", or one half, "model.layers.3.mlp".
/// Empty: the tensor is in the other half.
std::string_view region_of(const Tensor& tensor, layout::CheckpointPart part) {
  const std::string_view name = tensor.name;
  const std::string number = concat(".", tensor.block, ".");
  const std::size_t at = name.find(number);
  if (at == name.npos) return {};
  const std::size_t block = at + number.size() - 1;
  if (part == layout::CheckpointPart::block) return name.substr(0, block);
  const bool attention = tensor.part == Part::attention;
  if (attention != (part == layout::CheckpointPart::attention)) return {};
  return name.substr(0, name.find('.', block + 1));
}

/// For each block, whether the name of its recomputed region matches. Throws InputError if none does.
std::vector<bool> blocks_named(const Model& model, const std::string& names, layout::CheckpointPart part) {
  const Pattern pattern("--gradient_checkpointing_kwargs: names", names);
  std::vector<bool> named(static_cast<std::size_t>(model.layers), false);
  for (const Tensor& tensor : tensors(model)) {
    if (tensor.block < 0 || tensor.block >= model.layers) continue;
    if (const std::string_view region = region_of(tensor, part); !region.empty() && pattern.fits(region))
      named[static_cast<std::size_t>(tensor.block)] = true;
  }
  if (std::find(named.begin(), named.end(), true) == named.end())
    throw InputError(concat(
        "gradient checkpointing selects nothing: no name in the model matches the regular expression '", names, "'"));
  return named;
}

void recompute_as(const OptimizationConfig& config, const Model& model, Plan& plan) {
  if (!config.gradient_checkpointing) return;
  const layout::CheckpointPlan asked = config::parse_checkpoint_plan(config.gradient_checkpointing_kwargs);
  plan.recompute = asked.every;
  plan.recomputed_part = asked.part;
  plan.inputs_are_offloaded = !asked.offload_inputs_to.empty();
  if (!asked.names.empty() && !model.recorded) plan.recomputed_names = blocks_named(model, asked.names, asked.part);
}

/// A language model's folder or configuration combined with --vision_tower, as in models/vision/compose.h.
Model composed_model(const ModelConfig& m) {
  const std::string &folder = m.model_name_or_path, tower = path_join(m.vision_tower, "config.json");
  if (!path_exists(tower))
    throw InputError(concat("--vision_tower ", m.vision_tower, ": no folder with a config.json"));
  const Value language = folder.empty() ? config::model_from_scratch(m) : read_json(path_join(folder, "config.json"));
  Model model = read_model(
      architectures::sees_images(language) ? language : config::compose_llava_config(language, read_json(tower), m));
  model.name = folder.empty() ? m.config_name : folder;
  return model;
}

Model model_named(const ModelConfig& m) {
  if (!m.model_name_or_path.empty() && path_exists(path_join(m.model_name_or_path, "adapter_config.json")))
    throw InputError(
        concat(m.model_name_or_path,
               ": it contains LoRA adapters, which cannot be planned; plan for the base model with --lora_r"));
  if (!m.vision_tower.empty()) return composed_model(m);
  if (!m.model_name_or_path.empty()) return find_model(m.model_name_or_path);
  if (m.config_name.empty())
    throw InputError(
        "no model: use --model_name_or_path with a folder, or --config_name with a config.json or a preset");
  // A recorded step is fixed; a config.json is changed by --config_overrides, as in `tessera train`.
  const std::string& name = m.config_name;
  const std::string path = is_directory(name) ? path_join(name, "config.json") : name;
  std::optional<Value> config = path_exists(path) ? read_json(path) : architectures::model_preset(name);
  if (config && is_recorded(*config)) return find_model(name);
  Model model = read_model(config::with_settings(config ? *config : preset_config(name), m));
  model.name = name;
  return model;
}

}  // namespace

Model model_of(const RunConfig& config) {
  Model model = model_named(config.model);
  model.predicts = config.optimization.mtp_loss_scaling_factor > 0;
  choose_trained_parts(model, config);
  if (const std::string problem = adapters_problem(model); !problem.empty()) throw InputError(problem);
  return model;
}

void choose_trained_parts(Model& model, const RunConfig& run) {
  const ModelConfig& config = run.model;
  if (config.lora_r > 0) {
    Adapters a{.rank = config.lora_r,
               .targets = config::lora_targets(config),
               .whole = config::lora_modules_to_save(config),
               .dropout = config.lora_dropout > 0 && !run.optimization.disable_dropout};
    a.bits = config.load_in_4bit ? 4 : config.load_in_8bit ? 8 : 0;
    a.double_quant = config.bnb_4bit_use_double_quant;
    const ComputeType compute = config.bnb_4bit_compute_dtype;
    a.half_products = a.bits == 4 && (compute == ComputeType::bf16 || compute == ComputeType::fp16);
    model.adapters = std::move(a);
  }
  if (!model.vision) return;
  model.trained = !config.tune_mm_mlp_adapter && !config.freeze_backbone;
  model.projector_trained = !config.freeze_mm_mlp_adapter;
}

Plan plan_on(const RunConfig& config, const Model& model, const layout::Mesh& mesh, bool on_cpu) {
  const OptimizationConfig& o = config.optimization;
  const ParallelConfig& p = config.parallel;
  Plan plan;
  plan.on_cpu = on_cpu;
  plan.mesh = mesh;
  plan.strategy = config.sharding.strategy;
  plan.offload = config.sharding.cpu_offload;
  const bool narrow = config.sharding.param_dtype != FloatType::fp32;
  plan.precision = narrow ? Precision::bf16_whole : o.bf16 || o.fp16 ? Precision::bf16 : Precision::fp32;
  plan.numerics = numerics_of(plan.precision, plan.on_cpu);
  plan.numerics.wire = config.sharding.reduce_dtype != FloatType::fp32 ? 2 : 4;
  plan.numerics.states = config::optimizer_state_bytes(o);
  plan.numerics.of_tables = config::wide_state_bytes(o) - plan.numerics.states;
  if (model.recorded && config.data.block_size == 0)
    plan.sequence = model.recorded->row_tokens;
  else
    plan.sequence = config.data.block_size > 0 ? config.data.block_size : std::min<std::int64_t>(1024, model.positions);
  if (model.vision && config.data.max_seq_length > 0) plan.sequence = config.data.max_seq_length;  // rows are examples
  plan.rows = o.per_device_train_batch_size;
  plan.micro_batches = o.gradient_accumulation_steps;
  recompute_as(o, model, plan);
  plan.sequence_parallel = p.sequence_parallel;
  plan.bucket_bytes = p.ddp_bucket_cap_mb * (1 << 20);
  if (const auto* row = schedule::find_schedule(p.pipeline_schedule); p.pp_size > 1 && row != nullptr) {
    plan.schedule = row->name;
    plan.stages_per_rank = p.pipeline_stages_per_rank > 0 ? p.pipeline_stages_per_rank : row->least_stages;
  }
  if (p.pp_size <= 1 || p.pipeline_layout.empty() || model.recorded)
    cut_plan(model, plan);
  else if (layout::is_layout_word(p.pipeline_layout))
    plan.parts = schedule::cut_for_schedule(
        architectures::chain_flops(model, model.computed_depths(), p.pipeline_layout == layout::layout_by_half_blocks),
        config::run_schedule(config));
  else
    plan.parts = layout::parse_stage_layout(p.pipeline_layout, model.layers,
                                            static_cast<int>(plan.pp() * plan.stages_per_rank), model.depths);
  return plan;
}

Plan plan_of(const RunConfig& config, const Model& model, const Cluster& cluster) {
  const layout::Mesh mesh = config::run_mesh(config, cluster.devices, cluster.per_node);
  Plan plan = plan_on(config, model, mesh, config.device == tessera::Device::cpu && cluster.on_cpu);
  if (const std::string problem = plan_problem(model, plan); !problem.empty()) throw InputError(problem);
  return plan;
}

}  // namespace tessera::plan
