// FSDP's terms for the sharding of a run, for the writers.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert_writers.h>
#include <tessera/config/resolve/resolve.h>

#include <algorithm>
#include <cctype>

namespace tessera::config {
namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

/// Collects members in order, with a prefix.
class FsdpSection {
 public:
  FsdpSection(Plan& plan, std::string prefix) : plan_(plan), prefix_(std::move(prefix)) {}
  void add(const char* key, Value value) { value_.set(prefix_ + key, std::move(value)); }
  /// Adds the setting's value under `key`, even if it is our default (for keys whose default differs in the other
  /// system).
  void always(const char* key, const char* setting) {
    plan_.take(setting);
    add(key, plan_.value(setting));
  }
  void when_said(const char* key, const char* setting) {
    if (plan_.take(setting)) add(key, plan_.value(setting));
  }
  Value take() { return std::move(value_); }

 private:
  Plan& plan_;
  std::string prefix_;
  Value value_ = Value::make_object();
};

std::string fsdp_word(Strategy strategy) {
  if (strategy == Strategy::ddp) return "no_shard";
  return word_of(strategy == Strategy::zero3 ? Strategy::full_shard : strategy);
}

bool is_full_shard(const RunConfig& config) { return same_strategy(config.sharding.strategy, Strategy::full_shard); }

}  // namespace

bool speaks_deepspeed(const RunConfig& config) {
  const Strategy strategy = config.sharding.strategy;
  const Offload offload = config.sharding.cpu_offload;
  return strategy == Strategy::zero1 || strategy == Strategy::zero2 ||
         (is_full_shard(config) && (offload == Offload::optimizer || offload == Offload::params));
}

Value fsdp_section(Plan& plan, bool prefix, bool sizes_say_copies) {
  const ShardingConfig& sharding = plan.config.sharding;
  FsdpSection out(plan, prefix ? "fsdp_" : "");
  // version 1 names the strategy; version 2 can express that parameters stay whole after forward
  const bool second = sizes_say_copies || (is_full_shard(plan.config) && plan.has("reshard_after_forward"));
  out.add("version", Value::of(second ? 2 : 1));
  if (second) {
    plan.take("strategy");
    plan.take("reshard_after_forward");
    const bool reshards =
        decided(sharding.reshard_after_forward).value_or(row_of(sharding.strategy).reshard_after_forward);
    out.add("reshard_after_forward", Value::of(reshards));
  } else if (row_of(sharding.strategy).shard_parameters || sharding.strategy == Strategy::ddp) {
    plan.take("strategy");
    out.add("sharding_strategy", Value::of(upper(fsdp_word(sharding.strategy))));
  }
  if (sharding.cpu_offload == Offload::none || sharding.cpu_offload == Offload::all) {
    plan.take("cpu_offload");
    out.add("offload_params", Value::of(sharding.cpu_offload == Offload::all));
  }
  if (sharding.auto_wrap_policy != AutoWrap::regex) {
    plan.take("auto_wrap_policy");
    out.add("auto_wrap_policy", Value::of(upper(word_of(sharding.auto_wrap_policy))));
  }
  out.when_said("transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap");
  if (sharding.auto_wrap_policy == AutoWrap::size_based)
    out.always("min_num_params", "min_num_params");
  else if (!sharding.transformer_layer_cls_to_wrap.empty())
    plan.take("min_num_params");  // the classes override it
  out.when_said("ignored_modules", "ignored_modules");
  if (!second) {
    plan.take("backward_prefetch");
    out.add("backward_prefetch", Value::of(upper(word_of(sharding.backward_prefetch))));
    out.always("forward_prefetch", "forward_prefetch");
    out.always("sync_module_states", "sync_module_states");
    out.add("use_orig_params", Value::of(true));
    if (!prefix) out.when_said("limit_all_gathers", "limit_all_gathers");
  }
  out.always("cpu_ram_efficient_loading", "cpu_ram_efficient_loading");
  const StateDictType type = plan.config.output.save_state_dict_type;
  const bool refused = second && type == StateDictType::local;  // by version 2
  if (!refused) plan.take("save_state_dict_type");
  out.add("state_dict_type", Value::of(upper(word_of(refused ? StateDictType::sharded : type)) + "_STATE_DICT"));
  if (prefix) out.always("activation_checkpointing", "gradient_checkpointing");
  return out.take();
}

Converted to_fsdp_config(const Resolved& resolved) {
  Plan plan(resolved);
  if (!row_of(resolved.values.sharding.strategy).shard_parameters)
    throw InputError(concat("an fsdp_config cannot express strategy ", resolved.values.sharding.strategy,
                            ": it shards no parameters; use --to accelerate or --to deepspeed"));
  Value section = fsdp_section(plan, false);
  return {std::move(section), plan.lost("an fsdp_config has no key for it")};
}

}  // namespace tessera::config
