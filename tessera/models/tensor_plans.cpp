#include <tessera/models/tensor_plans.h>

#include <tessera/base/error.h>
#include <tessera/models/layers.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace tessera::models {
namespace {

using layout::TensorPlan;
using layout::TensorRule;
using layout::TensorStyle;

const TensorRule* rule_of(const TensorPlan& plan, const std::string& parameter) {
  const auto rule =
      std::ranges::find_if(plan, [&](const TensorRule& r) { return layout::matches(r.pattern, parameter); });
  return rule == plan.end() ? nullptr : &*rule;
}

/// Queries meet their keys on the same rank: if one of the three is gathered, all are.
void check_attention(const TensorPlan& plan, const std::vector<std::string>& parameters) {
  for (const auto& [query, others] :
       {std::pair<std::string, std::array<std::string, 2>>{"q_proj.weight", {"k_proj.weight", "v_proj.weight"}},
        {"self.query.weight", {"self.key.weight", "self.value.weight"}}})
    for (const std::string& parameter : parameters) {
      if (!parameter.ends_with(query)) continue;
      const std::string module = parameter.substr(0, parameter.size() - query.size());
      const TensorRule* const first = rule_of(plan, parameter);
      for (const std::string& other : others) {
        const TensorRule* const second = rule_of(plan, module + other);
        if ((first ? first->style : TensorStyle::replicated) != (second ? second->style : TensorStyle::replicated))
          throw InputError(concat("config.json: the tp_plan gives ", parameter, " a different style than ", module,
                                  other, ": queries, keys and values must be cut alike, or not at all"));
      }
    }
}

/// The family's plan preceded by config.json's entries; rules without remaining parameters are dropped.
TensorPlan with_entries(const LanguageModel& model, const TensorPlan& family, const Value& entries) {
  std::vector<std::string> parameters;
  for (const auto& item : model.named_parameters()) parameters.push_back(item.key());
  TensorPlan plan;
  for (const auto& [pattern, style] : entries.members()) {
    const TensorRule said = layout::parse_rule(pattern, style.as_string());
    const auto named =
        std::ranges::find_if(parameters, [&](const std::string& p) { return layout::matches(pattern, p); });
    if (named == parameters.end() &&
        std::ranges::any_of(model.elsewhere(), [&](const std::string& p) { return layout::matches(pattern, p); }))
      continue;  // belongs to another stage
    if (named == parameters.end())
      throw InputError(concat("config.json: the tp_plan names '", pattern, "', but the model has no such parameter"));
    TensorRule rule = said;
    if (const TensorRule* own = rule_of(family, *named)) {
      rule = *own;
      rule.pattern = pattern;
      rule.style = said.style;
      if (said.blocks > 1) rule.blocks = said.blocks;
      if (said.style == TensorStyle::colwise_gather_output) {  // a gathered output may be cut anywhere
        rule.heads = 0;
        rule.block_heads.clear();
      }
    }
    plan.push_back(std::move(rule));
  }
  plan.insert(plan.end(), family.begin(), family.end());
  std::vector<const TensorRule*> used;
  for (const std::string& parameter : parameters) used.push_back(rule_of(plan, parameter));
  check_attention(plan, parameters);
  TensorPlan kept;
  for (const TensorRule& rule : plan)
    if (std::ranges::find(used, &rule) != used.end()) kept.push_back(rule);
  return kept;
}

void add_adapters(const LanguageModel& model, TensorPlan& plan) {
  const std::size_t own_rules = plan.size();
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* const linear = dynamic_cast<const Linear*>(item.value().get());
    if (linear == nullptr || !linear->lora_A) continue;
    const std::string& name = item.key();
    for (std::size_t i = 0; i < own_rules; ++i) {
      if (!layout::matches(plan[i].pattern, name + ".weight")) continue;
      TensorRule rule = plan[i];
      rule.transposed = false;  // A [r, in] and B [out, r] are not transposed
      const bool inputs = rule.style == TensorStyle::rowwise || rule.style == TensorStyle::rowwise_split_input;
      rule.pattern = name + (inputs ? ".lora_A" : ".lora_B");
      plan.push_back(rule);
      plan.push_back({name + (inputs ? ".lora_B" : ".lora_A"), TensorStyle::sequence_parallel});
      break;
    }
  }
}

}  // namespace

layout::TensorPlan tensor_plan(const LanguageModel& model) {
  TensorPlan plan = model.tensor_plan();
  for (const char* key : {"base_model_tp_plan", "tp_plan"})
    if (const Value* entries = model.hf_config().find(key); entries != nullptr && entries->is_object())
      plan = with_entries(model, plan, *entries);
  add_adapters(model, plan);
  if (model.elsewhere().empty()) return plan;
  const auto parameters = model.named_parameters();
  std::erase_if(plan, [&](const TensorRule& rule) {  // removes rules of other stages
    return std::none_of(parameters.begin(), parameters.end(),
                        [&](const auto& item) { return layout::matches(rule.pattern, item.key()); });
  });
  return plan;
}

}  // namespace tessera::models
