#include <tessera/config/accelerate/accelerate_environment.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/xla_fsdp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <memory>

namespace tessera::config {
namespace {

/// How Python formats the value: str(x), or str(x).lower().
enum class Written { as_is, lower };

struct Variable {
  std::string name;
  std::string_view section;
  std::string key;
  std::string
      /// accelerate's default: written if the file does not set it, and ignored when read; empty: not written
      default_text;
  Written written = Written::as_is;
};
using Rows = std::vector<Variable>;

/// The variables of a section, in the order of utils/launch.py, as words "key=default": the variable is the prefix plus
/// the key in capitals ("variable:key" if it has another name). Values that Python formats as str(x).lower() are
/// written "key=true", "key=false" and "key!".
Rows variables(std::string_view section, std::string_view prefix, std::string_view key_prefix, const char* words) {
  Rows out;
  for (const std::string& word : split(words, ' ')) {
    const std::size_t end = word.find_first_of("=!"), colon = word.substr(0, end).find(':');
    const std::string name = word.substr(0, end);
    const std::string default_text = end == std::string::npos || word[end] == '!' ? "" : word.substr(end + 1);
    const bool lower = word.ends_with('!') || default_text == "true" || default_text == "false";
    std::string variable = concat(prefix, name.substr(0, colon));
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    out.push_back({std::move(variable), section,
                   concat(key_prefix, colon == std::string::npos ? name : name.substr(colon + 1)), default_text,
                   lower ? Written::lower : Written::as_is});
  }
  return out;
}

const Rows& dynamo() {
  static const Rows rows =
      variables("dynamo_config", "ACCELERATE_DYNAMO_", "dynamo_",
                "backend=NO mode=default use_fullgraph=False use_dynamic=False use_regional_compilation=False");
  return rows;
}
const Rows& fp8_variables() {
  static const Rows rows = variables("fp8_config", "ACCELERATE_", "",
                                     "fp8_backend fp8_use_autocast_during_eval=False fp8_margin=0 fp8_interval=1 "
                                     "fp8_format=HYBRID fp8_amax_history_len=1024 fp8_amax_compute_algo=most_recent "
                                     "fp8_override_linear_precision fp8_opt_level");
  return rows;
}
const Rows& fsdp() {
  static const Rows rows =
      variables("fsdp_config", "FSDP_", "fsdp_",
                "version=1 sharding_strategy=FULL_SHARD reshard_after_forward=true offload_params=false "
                "min_num_params=100000000 auto_wrap_policy transformer_cls_to_wrap:transformer_layer_cls_to_wrap "
                "backward_prefetch state_dict_type forward_prefetch=false use_orig_params=true "
                "cpu_ram_efficient_loading=true sync_module_states=true activation_checkpointing=false "
                "activation_checkpointing_offload=false ignored_modules");
  return rows;
}
const Rows& megatron_variables() {
  static const Rows rows = variables(
      "megatron_lm_config", "MEGATRON_LM_", "megatron_lm_",
      "tp_degree=1 use_custom_fsdp=False no_load_optim=False eod_mask_loss=False no_save_optim=False "
      "optimizer_cpu_offload=False use_precision_aware_optimizer=False overlap_cpu_optimizer_d2h_h2d=False "
      "decoder_last_pipeline_num_layers pp_degree=1 gradient_clipping=1.0 num_micro_batches sequence_parallelism "
      "recompute_activations use_distributed_optimizer recompute_granularity recompute_method "
      "recompute_num_layers attention_backend expert_model_parallel_size context_parallel_size attention_dropout "
      "hidden_dropout attention_softmax_in_fp32 expert_tensor_parallel_size calculate_per_token_loss "
      "use_rotary_position_embeddings");
  return rows;
}
const Rows& deepspeed_variables() {
  static const Rows rows =
      variables("deepspeed_config", "ACCELERATE_", "",
                "deepspeed_zero_stage:zero_stage gradient_accumulation_steps gradient_clipping! "
                "deepspeed_offload_optimizer_device:offload_optimizer_device! "
                "deepspeed_offload_param_device:offload_param_device! deepspeed_zero3_init:zero3_init_flag! "
                "deepspeed_zero3_save_16bit_model:zero3_save_16bit_model! deepspeed_config_file "
                "deepspeed_moe_layer_cls_names");
  return rows;
}
const Rows& mesh() {
  static const Rows rows =
      variables("parallelism_config", "PARALLELISM_CONFIG_", "parallelism_config_",
                "dp_replicate_size=1 dp_shard_size=1 tp_size=1 cp_size=1 cp_backend=torch cp_comm_strategy sp_size=1 "
                "sp_backend=deepspeed");
  return rows;
}

/// The environment as the file that it came from. Positions of values are names of variables.
class Tree {
 public:
  explicit Tree(const GetEnvironment& environment) : environment_(environment) {}

  std::optional<std::string> text(std::string_view name) const {
    auto found = look_up(environment_, std::string(name));
    return found && !found->empty() ? found : std::nullopt;
  }
  bool on(std::string_view name) const {
    const auto word = text(name);
    return word && parse_bool(*word).value_or(false);
  }

  void set(std::string_view section, std::string_view key, std::string_view variable, std::string value) {
    Value leaf = Value::of(std::move(value));
    leaf.set_where(environment_position(std::string(variable)));
    if (section.empty()) return root_.set(std::string(key), std::move(leaf));
    Value inner = Value::make_object();
    if (const Value* old = root_.find(section)) inner = *old;
    if (inner.members().empty()) inner.set_where(leaf.where());
    inner.set(std::string(key), std::move(leaf));
    root_.set(std::string(section), std::move(inner));
  }

  /// Takes every variable whose value is not accelerate's default.
  void take(const Rows& rows) {
    for (const Variable& row : rows)
      if (const auto value = text(row.name); value && *value != row.default_text && to_lower(*value) != "none")
        set(row.section, row.key, row.name, *value);
  }

  const Value& root() const { return root_; }

 private:
  const GetEnvironment& environment_;
  Value root_ = Value::make_object();
};

/// accelerate always sets the variables of both FSDP versions. Takes only those that the configured version reads, and
/// the strategy's new name if a version 1 file uses it.
void take_fsdp(Tree& tree) {
  const bool second = tree.text("FSDP_VERSION") == "2";
  const std::string reshard = tree.text("FSDP_RESHARD_AFTER_FORWARD").value_or("true");
  const std::string strategy = tree.text("FSDP_SHARDING_STRATEGY").value_or("FULL_SHARD");
  const bool new_name = !parse_bool(reshard) && strategy == "FULL_SHARD";
  for (const Variable& row : fsdp()) {
    const auto value = tree.text(row.name);
    if (!value) continue;
    const bool is_strategy = row.name == "FSDP_SHARDING_STRATEGY";
    if (is_strategy && (second ? strategy == "FULL_SHARD" : new_name)) continue;
    if (row.name == "FSDP_RESHARD_AFTER_FORWARD" && !second && parse_bool(reshard)) continue;
    if (*value == row.default_text && !is_strategy && row.name != "FSDP_FORWARD_PREFETCH") continue;
    tree.set(row.section, row.key, row.name, *value);
  }
}

std::string python(const Value& value, Written written) {
  std::string text = value.is_string() ? value.as_string() : as_text(value, false).value_or("");
  if (value.kind() == Value::Kind::boolean) text = value.as_bool() ? "True" : "False";
  if (value.kind() == Value::Kind::real && text.find_first_of(".en") == std::string::npos) text += ".0";
  return written == Written::lower ? to_lower(text) : text;
}

using Variables = std::vector<std::pair<std::string, std::string>>;

void write(const Value& file, const Rows& rows, Variables& out) {
  for (const Variable& row : rows) {
    const Value* value = find_accelerate(file, row.section, row.key);
    if (value == nullptr && row.default_text.empty()) continue;
    out.emplace_back(row.name, value == nullptr ? row.default_text : python(*value, row.written));
  }
}

/// Renames keys that accelerate never reads to those that it does read.
Value with_names_that_are_read(const Value& file) {
  const Value* section = file.find("fsdp_config");
  if (section == nullptr || !section->is_object()) return file;
  Value renamed = Value::make_object();
  renamed.set_where(section->where());
  for (const auto& [key, value] : section->members()) {
    std::string name = key.starts_with("fsdp_") ? key : "fsdp_" + key;
    if (name == "fsdp_backward_prefetch_policy") name = "fsdp_backward_prefetch";
    if (name == "fsdp_wrap_policy") name = "fsdp_auto_wrap_policy";
    if (name == "fsdp_min_num_param") name = "fsdp_min_num_params";
    if (name == "fsdp_transformer_cls_names_to_wrap") name = "fsdp_transformer_layer_cls_to_wrap";
    if (name == "fsdp_cpu_offload") name = "fsdp_offload_params";
    Value kept = value;
    if (name == "fsdp_min_num_params" || name == "fsdp_transformer_layer_cls_to_wrap")  // 1e8; a list of classes
      if (const auto text = as_text(value, true); text && !value.is_null()) kept = Value::of(*text);
    if (!kept.is_null()) renamed.set(name, std::move(kept));
  }
  Value out = file;
  out.set("fsdp_config", std::move(renamed));
  return out;
}

// The packed form: a leaf is [value, position], a section is {"at": position, "keys": {...}}.
Value packed_position(const SourcePos& where) {
  return Value::make_array({Value::of(where.file ? *where.file : ""), Value::of(where.line), Value::of(where.column),
                            Value::of(static_cast<int>(where.kind))});
}

Value packed(const Value& value) {
  if (!value.is_object()) return Value::make_array({value, packed_position(value.where())});
  Value keys = Value::make_object();
  for (const auto& [key, member] : value.members()) keys.set(key, packed(member));
  return Value::make_object({{"at", packed_position(value.where())}, {"keys", std::move(keys)}});
}

SourcePos unpacked_position(const Value& at) {
  const std::vector<Value>& parts = at.items();
  if (parts.size() != 4) throw InputError(concat(at.where().str(), ": expected a position"));
  const auto number = [](const Value& part) {
    return static_cast<int>(std::clamp<std::int64_t>(part.as_int(), 0, 1 << 30));
  };
  return {std::make_shared<const std::string>(parts[0].as_string()), number(parts[1]), number(parts[2]),
          static_cast<SourcePos::Kind>(std::min(number(parts[3]), static_cast<int>(SourcePos::Kind::flag)))};
}

Value unpacked(const Value& from, int depth) {
  if (depth > 3) throw InputError(concat(from.where().str(), ": sections within sections"));
  if (!from.is_object()) {
    if (from.items().size() != 2) throw InputError(concat(from.where().str(), ": expected a value and its position"));
    Value value = from.items()[0];
    value.set_where(unpacked_position(from.items()[1]));
    return value;
  }
  Value value = Value::make_object();
  value.set_where(unpacked_position(from.at("at")));
  for (const auto& [key, member] : from.at("keys").members()) value.set(key, unpacked(member, depth + 1));
  return value;
}

}  // namespace

std::string packed_accelerate(const Value& file) {
  static constexpr std::array<std::string_view, 14> launchers = {"num_processes",
                                                                 "num_machines",
                                                                 "machine_rank",
                                                                 "main_process_ip",
                                                                 "main_process_port",
                                                                 "gpu_ids",
                                                                 "enable_cpu_affinity",
                                                                 "same_network",
                                                                 "rdzv_backend",
                                                                 "mpirun_config",
                                                                 "deepspeed_multinode_launcher",
                                                                 "deepspeed_hostfile",
                                                                 "deepspeed_exclusion_filter",
                                                                 "deepspeed_inclusion_filter"};
  // For XLA, num_processes is the number of devices, which the training process itself opens.
  const bool devices = asks_for_xla(file);
  const auto without = [devices](const Value& from) {
    Value kept = Value::make_object();
    kept.set_where(from.where());
    for (const auto& [key, value] : from.members())
      if (std::find(launchers.begin(), launchers.end(), key) == launchers.end() || (devices && key == "num_processes"))
        kept.set(key, value);
    return kept;
  };
  Value kept = without(file);
  if (const Value* section = kept.find("deepspeed_config"); section != nullptr && section->is_object())
    kept.set("deepspeed_config", without(*section));
  std::string text = dump_json(packed(kept), -1);
  if (!is_utf8(text))  // YAML's escapes in double quotes can produce any bytes
    throw InputError(concat(file_and_line(file.where()), ": some text is not UTF-8; write it without escapes"));
  return text;
}

Value unpacked_accelerate(const std::string& text) {
  return unpacked(parse_json(text, concat("environment ", accelerate_file_variable)), 0);
}

Translation read_accelerate_environment(const GetEnvironment& environment, Problems& problems) {
  Tree tree(environment);
  if (const auto text = tree.text(accelerate_file_variable)) {
    try {
      return read_accelerate(unpacked_accelerate(*text), problems);
    } catch (const InputError& error) {
      problems.lines.push_back(error.what());
      return {};
    }
  }
  struct Kind {
    std::string_view variable, type;
  };
  std::vector<Kind> kinds;
  for (const Kind& kind : {Kind{"ACCELERATE_USE_FSDP", "FSDP"}, Kind{"ACCELERATE_USE_DEEPSPEED", "DEEPSPEED"},
                           Kind{"ACCELERATE_USE_MEGATRON_LM", "MEGATRON_LM"}})
    if (tree.on(kind.variable)) kinds.push_back(kind);
  if (kinds.size() > 1) {
    problems.lines.push_back(concat("environment ", kinds[0].variable, " and ", kinds[1].variable,
                                    " are both on, but they exclude each other; unset one of them"));
    problems.doubtful.insert("strategy");
    return {};
  }
  tree.set("", "distributed_type", kinds.empty() ? "ACCELERATE_MIXED_PRECISION" : kinds[0].variable,
           kinds.empty() ? "NO" : std::string(kinds[0].type));
  const std::string type = kinds.empty() ? "" : std::string(kinds[0].type);
  if (type == "FSDP") take_fsdp(tree);
  if (type == "MEGATRON_LM") tree.take(megatron_variables());
  if (type == "DEEPSPEED") tree.take(deepspeed_variables());
  if (tree.on("ACCELERATE_USE_PARALLELISM_CONFIG")) tree.take(mesh());
  tree.take(dynamo());
  if (const auto precision = tree.text("ACCELERATE_MIXED_PRECISION"); precision && to_lower(*precision) != "no")
    tree.set("", "mixed_precision", "ACCELERATE_MIXED_PRECISION", *precision);
  if (to_lower(tree.text("ACCELERATE_MIXED_PRECISION").value_or("")) == "fp8") tree.take(fp8_variables());
  if (tree.on("ACCELERATE_USE_CPU")) tree.set("", "use_cpu", "ACCELERATE_USE_CPU", "true");
  Translation out = read_accelerate(tree.root(), problems);
  // accelerate's Accelerator reads this variable for every distributed_type
  if (const auto steps = tree.text("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
      steps && type != "DEEPSPEED" && *steps != "auto") {
    Translator extra(problems);  // reports a problem if Megatron's number of micro-batches differs
    for (const FileSetting& setting : out.settings)
      if (setting.name == "gradient_accumulation_steps")
        extra.give(setting.name, setting.key, setting.text, setting.where);
    std::erase_if(out.settings,
                  [](const FileSetting& setting) { return setting.name == "gradient_accumulation_steps"; });
    extra.give("gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", *steps,
               environment_position("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"));
    for (FileSetting& setting : extra.take().settings) out.settings.push_back(std::move(setting));
  }
  if (type.empty())
    for (const std::string_view name :
         {"FSDP_SHARDING_STRATEGY", "FSDP_VERSION", "FSDP_AUTO_WRAP_POLICY", "FSDP_OFFLOAD_PARAMS"})
      if (tree.text(name)) {
        out.notes.push_back(concat("environment ", name, ": has no effect without ACCELERATE_USE_FSDP=true"));
        break;
      }
  return out;
}

std::vector<std::pair<std::string, std::string>> accelerate_variables(const Value& given) {
  const Value file = with_names_that_are_read(given);
  Variables out;
  const auto word = [&](std::string_view key) {
    const Value* value = find_accelerate(file, "", key);
    return value == nullptr ? std::string() : to_lower(as_text(*value, true).value_or(""));
  };
  const auto on = [&](std::string_view key) { return parse_bool(word(key)).value_or(false); };
  const std::string type = word("distributed_type");
  std::string precision = word("mixed_precision");
  if (precision.empty() || precision == "false" || precision == "none") precision = on("fp16") ? "fp16" : "no";

  const bool plain = type != "multi_gpu" && type != "fsdp" && type != "deepspeed" && type != "megatron_lm";
  if (plain || on("use_cpu")) out.emplace_back("ACCELERATE_USE_CPU", on("use_cpu") ? "True" : "False");
  if (on("debug")) out.emplace_back("ACCELERATE_DEBUG_MODE", "true");
  out.emplace_back("ACCELERATE_MIXED_PRECISION", precision);
  if (type == "deepspeed") {
    std::vector<std::string> fields;
    if (const Value* section = find_accelerate(file, "", "deepspeed_config");
        section != nullptr && section->is_object())
      for (const auto& [key, value] : section->members()) fields.push_back(key);
    if (find_accelerate(file, "", "mixed_precision") != nullptr) fields.push_back("mixed_precision");
    out.emplace_back("ACCELERATE_CONFIG_DS_FIELDS", to_lower(join(fields, ",")));
    out.emplace_back("ACCELERATE_USE_DEEPSPEED", "true");
    write(file, deepspeed_variables(), out);
  } else {
    write(file, dynamo(), out);
  }
  if (precision == "fp8") write(file, fp8_variables(), out);
  if (type == "fsdp") {
    out.emplace_back("ACCELERATE_USE_FSDP", "true");
    write(file, fsdp(), out);
  }
  if (type == "megatron_lm") {
    out.emplace_back("ACCELERATE_USE_MEGATRON_LM", "true");
    write(file, megatron_variables(), out);
  }
  if (on("enable_cpu_affinity")) out.emplace_back("ACCELERATE_CPU_AFFINITY", "1");
  if (const Value* section = find_accelerate(file, "", "parallelism_config");
      section != nullptr && section->is_object() && !section->members().empty()) {
    out.emplace_back("ACCELERATE_USE_PARALLELISM_CONFIG", "true");
    write(file, mesh(), out);
  }
  return out;
}

}  // namespace tessera::config
