// The writer of TrainingArguments: a JSON file as HfArgumentParser reads it.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert_writers.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/layout/backends.h>

#include <algorithm>
#include <cmath>

namespace tessera::config {
namespace {

/// The argument's name for a setting; empty if transformers has none.
std::string_view key_of(std::string_view setting) {
  std::string_view other;
  for (const KeyRow& row : training_args_rows()) {
    if (row.effect != Effect::acts || row.setting != setting || row.key.find('.') != std::string_view::npos) continue;
    if (row.key == setting) return row.key;
    if (other.empty()) other = row.key;
  }
  return other;
}

/// transformers' name of the optimizer; empty if it has none.
std::string_view optimizer_word(const std::string& optim) {
  static constexpr std::pair<std::string_view, std::string_view> words[] = {
      {"adamw", "adamw_torch"},   {"sgd", "sgd"},         {"adagrad", "adagrad"},       {"lion", "lion_32bit"},
      {"adafactor", "adafactor"}, {"rmsprop", "rmsprop"}, {"adamw_8bit", "adamw_8bit"}, {"lion_8bit", "lion_8bit"}};
  for (const auto& [ours, theirs] : words)
    if (optim == ours) return theirs;
  return {};
}

bool is_theirs(std::string_view schedule) {
  static constexpr std::string_view ours[] = {"warmup_lr", "warmup_decay_lr", "warmup_cosine_lr", "one_cycle",
                                              "lr_range_test"};
  return std::find(std::begin(ours), std::end(ours), schedule) == std::end(ours);
}

/// The setting's value in JSON as in transformers; null if it cannot be expressed.
Value value_of(const Plan& plan, const std::string& name) {
  const Value value = plan.value(name);
  if (name == "optim")
    return optimizer_word(value.as_string()).empty() ? Value()
                                                     : Value::of(std::string(optimizer_word(value.as_string())));
  if (name == "lr_scheduler_type" && !is_theirs(value.as_string())) return {};
  if (name == "lr_scheduler_kwargs" || name == "gradient_checkpointing_kwargs")
    return Value::make_object(parse_overrides(value.as_string(), "--" + name));
  if (name == "backend") {
    const layout::BackendRow* row = layout::find_backend(value.as_string());
    return row != nullptr && row->in_pytorch ? value : Value();
  }
  // words here, booleans in transformers
  if (name == "greater_is_better" || name == "resume_from_checkpoint")
    if (const auto flag = parse_bool(value.as_string() == "last" ? "true" : value.as_string())) return Value::of(*flag);
  if (value.kind() == Value::Kind::real && value.as_real() == std::floor(value.as_real()) &&
      std::abs(value.as_real()) < 1e15 &&
      (name.ends_with("_steps") || name == "validation_split_percentage" || name == "ddp_bucket_cap_mb" ||
       name == "ddp_timeout"))
    return Value::of(static_cast<std::int64_t>(value.as_real()));
  return value;
}

/// Adds --fsdp's words and fsdp_config.
void add_fsdp(Plan& plan, Value& file) {
  const ShardingConfig& sharding = plan.config.sharding;
  std::string words = word_of(sharding.strategy == Strategy::zero3 ? Strategy::full_shard : sharding.strategy);
  const bool wraps =
      sharding.auto_wrap_policy == AutoWrap::transformer_based || sharding.auto_wrap_policy == AutoWrap::size_based;
  if (wraps) words += " auto_wrap";
  if (sharding.cpu_offload == Offload::all) words += " offload";
  const Value section = fsdp_section(plan, false);
  Value kept = Value::make_object();
  for (const auto& [key, value] : section.members())
    if (key != "sharding_strategy" && key != "offload_params" &&
        (key != "auto_wrap_policy" || !wraps || plan.has("auto_wrap_policy")))
      kept.set(key, value);
  file.set("fsdp", Value::of(words));
  file.set("fsdp_config", std::move(kept));
}

}  // namespace

Converted to_training_args(const Resolved& resolved) {
  Plan plan(resolved);
  Value file = Value::make_object();
  Value sharding = Value::make_object();
  if (speaks_deepspeed(resolved.values))
    sharding.set("deepspeed", deepspeed_json(plan, true));
  else if (row_of(resolved.values.sharding.strategy).shard_parameters)
    add_fsdp(plan, sharding);
  const auto said = plan.left();
  for (const auto& [name, text] : said) {
    if (name == "device") {
      if (text == "cpu" && plan.take(name)) file.set("use_cpu", Value::of(true));
      continue;
    }
    const Field& field = *find_field(name);
    const std::string_view key = field.section == Section::sharding ? std::string_view{} : key_of(name);
    if (key.empty()) continue;
    Value value = value_of(plan, name);
    if (value.is_null()) continue;
    plan.take(name);
    file.set(std::string(key), std::move(value));
  }
  for (const auto& [key, value] : sharding.members()) file.set(key, value);
  return {std::move(file), plan.lost("TrainingArguments have no argument for it")};
}

}  // namespace tessera::config
