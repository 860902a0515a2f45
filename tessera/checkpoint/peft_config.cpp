// Reads adapter_config.json: what this program computes, and what it refuses rather than compute wrongly.

#include <tessera/checkpoint/peft.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/names/module_names.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/files.h>

namespace tessera::checkpoint {
namespace {

/// Members that are read below, or that do not affect the computation of a trained adapter.
constexpr std::array harmless = std::to_array<std::string_view>({
    "peft_type",
    "task_type",
    "r",
    "lora_alpha",
    "lora_dropout",
    "target_modules",
    "modules_to_save",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "use_rslora",
    "fan_in_fan_out",
    "base_model_name_or_path",
    "bias",
    "init_lora_weights",
    "rank_pattern",
    "alpha_pattern",
    "auto_mapping",
    "revision",
    "inference_mode",
    "peft_version",
    "runtime_config",
    "ensure_weight_tying",
    "megatron_config",
    "megatron_core",
    "qalora_group_size",
    "eva_config",
});

/// Known features, for clear error messages.
struct Feature {
  std::string_view member, what;
};
constexpr std::array features = std::to_array<Feature>({
    {"use_dora", "weight-decomposed adapters (DoRA)"},
    {"use_qalora", "quantisation-aware adapters (QALoRA)"},
    {"lora_bias", "a bias on lora_B"},
    {"layer_replication", "replicated layers"},
    {"trainable_token_indices", "trained token embeddings"},
    {"target_parameters", "adapters on bare parameters"},
    {"alora_invocation_tokens", "activated adapters (aLoRA)"},
    {"arrow_config", "routing between adapters (Arrow)"},
    {"corda_config", "an initialisation that changes the base model (CorDA)"},
    {"loftq_config", "an initialisation that changes the base model (LoftQ)"},
});

/// Null, false and empty values enable nothing.
bool is_set(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null:
      return false;
    case Value::Kind::boolean:
      return value.as_bool();
    case Value::Kind::string:
      return !value.as_string().empty();
    case Value::Kind::array:
      return !value.items().empty();
    case Value::Kind::object:
      return !value.members().empty();
    default:
      return true;
  }
}

[[noreturn]] void refuse(const Value& value, const std::string& text) {
  throw InputError(concat(value.where().str(), ": ", text));
}

void check_features(const Value& json) {
  for (const auto& [member, value] : json.members()) {
    if (!is_set(value)) continue;
    if (std::find(harmless.begin(), harmless.end(), member) != harmless.end()) continue;
    for (const Feature& feature : features)
      if (member == feature.member) refuse(value, concat(member, ": ", feature.what, " is not supported"));
    refuse(value, concat(member,
                         " is not a setting of LoRA adapters that this program knows; remove it if the adapters "
                         "do not depend on it"));
  }
}

const Value* given(const Value& json, std::string_view member) {
  const Value* value = json.find(member);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

void check_kind(const Value& json) {
  const Value& type = json.at("peft_type");
  if (type.as_string() != "LORA")
    refuse(type, concat("peft_type \"", type.as_string(), "\" is not supported; it must be LORA"));
  if (const Value* task = given(json, "task_type"); task && task->as_string() != "CAUSAL_LM")
    refuse(*task, concat("task_type \"", task->as_string(), "\" is not supported; it must be CAUSAL_LM"));
  if (const Value* bias = given(json, "bias"); bias && bias->as_string() != "none")
    refuse(*bias, concat("bias \"", bias->as_string(), "\": trained biases are not supported; it must be \"none\""));
  if (const Value* init = given(json, "init_lora_weights"); init && init->is_string()) {
    const std::string& word = init->as_string();
    if (word != "gaussian" && word != "eva" && word != "orthogonal")  // these leave the base model unchanged
      refuse(*init, concat("init_lora_weights \"", word,
                           "\" changes the base model's weights, so the adapters do not fit it; save them converted "
                           "(PEFT: save_pretrained(path_initial_model_for_weight_conversion=...))"));
  }
}

void read_targets(const Value& json, LoraConfig& config) {
  for (const char* member : {"exclude_modules", "layers_to_transform", "layers_pattern"})
    if (const Value* value = json.find(member); value && is_set(*value)) config.targets_from_weights = true;
  const Value* targets = given(json, "target_modules");
  if (targets == nullptr || targets->is_string()) {
    const bool all = targets != nullptr && targets->as_string() == "all-linear";
    if (all) config.target_modules = {"all-linear"};
    if (!all) config.targets_from_weights = true;  // PEFT's table for the family, or a regular expression
  } else {
    for (const Value& target : targets->items()) config.target_modules.push_back(target.as_string());
    if (config.target_modules.empty()) refuse(*targets, "target_modules is empty, so no module is adapted");
  }
  if (config.targets_from_weights) config.target_modules.clear();
}

void read_saved_modules(const Value& json, LoraConfig& config) {
  const Value* saved = given(json, "modules_to_save");
  if (saved == nullptr) return;
  if (!saved->is_array()) refuse(*saved, "modules_to_save must be a list of names of modules");
  for (const Value& name : saved->items()) {
    config.modules_to_save.push_back(name.as_string());
    if (config.modules_to_save.back().empty()) refuse(name, "modules_to_save has an empty name");
  }
}

/// Reads a member that maps patterns to numbers.
template <class Number>
void read_pattern(const Value& json, const char* member, Number (*number)(const Value& value),
                  std::vector<std::pair<std::string, Number>>& patterns) {
  const Value* given_patterns = given(json, member);
  if (given_patterns == nullptr) return;
  if (!given_patterns->is_object()) refuse(*given_patterns, concat(member, " must be an object: names and numbers"));
  for (const auto& [name, value] : given_patterns->members()) {
    patterns.emplace_back(name, number(value));
    try {
      is_meant_module("", concat("(", name, ")"));
    } catch (const InputError& error) {
      refuse(value, concat(member, ": ", error.what()));
    }
  }
}

std::int64_t rank_in(const Value& value) {
  const std::int64_t rank = value.as_int();
  if (rank < 1 || rank > (1 << 20)) refuse(value, concat("r is ", rank, "; it must be from 1 to ", 1 << 20));
  return rank;
}

double alpha_in(const Value& value) {
  const double alpha = value.as_real();
  if (!(alpha > 0)) refuse(value, concat("lora_alpha is ", alpha, "; it must be above 0"));
  return alpha;
}

/// The number of a module's block, by PEFT's rule: the last number between two dots. Empty: none.
std::optional<std::int64_t> block_of(const std::string& module) {
  std::optional<std::int64_t> block;
  const std::vector<std::string> parts = split(module, '.');
  for (std::size_t i = 1; i + 1 < parts.size(); ++i)
    if (const auto number = parse_int(parts[i])) block = number;
  return block;
}

bool holds(const Value& numbers, std::optional<std::int64_t> wanted) {
  if (!numbers.is_array()) return numbers.as_int() == wanted;
  return std::any_of(numbers.items().begin(), numbers.items().end(),
                     [&](const Value& number) { return number.as_int() == wanted; });
}

}  // namespace

void require_targets(const std::string& folder, const std::vector<std::string>& stored) {
  const Value json = read_json(path_join(folder, kAdapterConfigFile));
  const Value *targets = given(json, "target_modules"), *layers = given(json, "layers_to_transform");
  std::optional<Pattern> pattern;
  if (targets && targets->is_string() && targets->as_string() != "all-linear")
    pattern.emplace(concat(targets->where().str(), ": target_modules"), targets->as_string());
  for (const std::string& name : stored) {
    if (!is_adapter_name(name)) continue;
    const std::string module = name.substr(0, name.rfind(".lora_"));
    if (pattern && !pattern->fits(module))
      refuse(*targets, concat("target_modules does not match ", module, ", for which the file has an adapter: use the ",
                              "pattern that it was trained with"));
    if (layers && is_set(*layers) && !holds(*layers, block_of(module)))
      refuse(*layers, concat("layers_to_transform excludes ", module, ", for which the file has an adapter: use the ",
                             "layers that were trained"));
  }
}

LoraConfig read_adapter_config(const std::string& folder) {
  const Value json = read_json(path_join(folder, kAdapterConfigFile));
  if (!json.is_object()) refuse(json, "an adapter configuration must be a JSON object");
  check_kind(json);
  check_features(json);
  LoraConfig config;
  config.r = rank_in(json.at("r"));
  config.alpha = alpha_in(json.at("lora_alpha"));
  read_pattern(json, "rank_pattern", rank_in, config.ranks);
  read_pattern(json, "alpha_pattern", alpha_in, config.alphas);
  if (const Value* dropout = given(json, "lora_dropout")) {
    config.dropout = dropout->as_real();
    if (!(config.dropout >= 0 && config.dropout < 1))
      refuse(*dropout, concat("lora_dropout is ", config.dropout, "; it must be at least 0 and below 1"));
  }
  if (const Value* flag = given(json, "ensure_weight_tying")) config.ties_embeddings = flag->as_bool();
  if (const Value* flag = given(json, "use_rslora")) config.rank_stabilized = flag->as_bool();
  if (const Value* flag = given(json, "fan_in_fan_out")) config.fan_in_fan_out = flag->as_bool();
  if (const Value* base = given(json, "base_model_name_or_path")) config.base_model = base->as_string();
  read_targets(json, config);
  read_saved_modules(json, config);
  // Other programs leave the base's config.json there, which adds no information.
  if (const std::string beside = path_join(folder, "config.json"); path_exists(beside))
    if (Value settings = read_json(beside); settings.is_object() && given(settings, "mm_vision_tower"))
      config.composition = std::move(settings);
  return config;
}

}  // namespace tessera::checkpoint
