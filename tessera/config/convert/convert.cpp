#include <tessera/config/convert/convert.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert_writers.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/resolve/resolve.h>

#include <algorithm>

namespace tessera::config {
namespace {

/// The setting's value as the text of a flag; empty: not given.
std::string flag_text(const Field& field, const RunConfig& config) {
  const Value value = field.get(config);
  return as_text(value, false).value_or("");
}

/// Converts JSON and K=V,... to a common form; returns other text unchanged.
std::string normalized(std::string_view name, const std::string& text) {
  if (trim(text).empty()) return {};
  try {
    std::vector<Value::Member> pairs = parse_overrides(text, concat("--", name));
    std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [key, value] : pairs)
      if (value.is_number()) value = Value::of(value.as_real());  // 5 and 5.0
    return dump_json(Value::make_object(std::move(pairs)), -1);
  } catch (const InputError&) {
    return text;
  }
}

bool same_value(const Field& field, const RunConfig& a, const RunConfig& b) {
  if (field.name == "strategy") return same_strategy(a.sharding.strategy, b.sharding.strategy);
  const Value first = field.get(a), second = field.get(b);
  if (field.rule.shown_as.find("K=V") != std::string_view::npos)
    return normalized(field.name, first.as_string()) == normalized(field.name, second.as_string());
  return dump_json(first) == dump_json(second);
}

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

/// Resolves the settings as if given as flags.
RunConfig resolve_settings(const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<std::string> flags;
  for (const auto& [name, text] : settings) flags.push_back(concat("--", name, "=", text));
  Problems problems;  // contradictions of the original were reported when it was resolved
  return resolve_flags(flags, problems, no_environment).values;
}

}  // namespace

bool only_describes(std::string_view setting) {
  static constexpr std::string_view names[] = {
      "config",  "config_file",     "deepspeed",  "args_file",       "compat",
      "fsdp",    "fsdp_config",     "zero_stage", "group_by_length", "group_by_modality_length",
      "unknown", "gamma_beta_ratio"};
  return std::find(std::begin(names), std::end(names), setting) != std::end(names);
}

std::vector<std::string> differences(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> names;
  for (const Field& field : fields())
    if (!only_describes(field.name) && !same_value(field, a, b)) names.emplace_back(field.name);
  return names;
}

std::vector<std::pair<std::string, std::string>> needed_settings(const Resolved& resolved) {
  std::vector<const Field*> chosen;
  const auto listed = [&] {
    std::vector<std::pair<std::string, std::string>> out;
    for (const Field& field : fields())  // in the order of the table
      if (std::find(chosen.begin(), chosen.end(), &field) != chosen.end())
        if (std::string text = flag_text(field, resolved.values); !text.empty())
          out.emplace_back(field.name, std::move(text));
    return out;
  };
  for (const Field& field : fields())
    if (!only_describes(field.name) && resolved.origin(field.name).is_given()) chosen.push_back(&field);
  // settings derived from omitted ones must be written as well
  for (std::size_t before = chosen.size() + 1; before != chosen.size();) {
    before = chosen.size();
    for (const std::string& name : differences(resolve_settings(listed()), resolved.values))
      if (const Field* field = find_field(name); std::find(chosen.begin(), chosen.end(), field) == chosen.end())
        chosen.push_back(field);
  }
  return listed();
}

Converted convert(const Resolved& resolved, FileKind target) {
  switch (target) {
    case FileKind::tessera:
      return to_tessera(resolved);
    case FileKind::accelerate:
      return to_accelerate(resolved);
    case FileKind::deepspeed:
      return to_deepspeed(resolved);
    case FileKind::training_args:
      return to_training_args(resolved);
    case FileKind::fsdp_config:
      return to_fsdp_config(resolved);
    case FileKind::megatron:
      throw InputError("Megatron-LM's arguments can be read but not written; convert to tessera or training_args");
  }
  throw Error("unknown kind of file");
}

std::string file_text(const Value& file, FileKind kind, bool json) {
  const bool yaml = kind == FileKind::tessera || kind == FileKind::accelerate;
  return yaml && !json ? dump_yaml(file) : dump_json(file) + "\n";
}

Value sorted(const Value& object) {
  std::vector<Value::Member> members = object.members();
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return Value::make_object(std::move(members));
}

Plan::Plan(const Resolved& resolved) : config(resolved.values), settings_(needed_settings(resolved)) {}

bool Plan::take(std::string_view name) {
  const auto found =
      std::find_if(settings_.begin(), settings_.end(), [&](const auto& setting) { return setting.first == name; });
  if (found == settings_.end()) return false;
  settings_.erase(found);
  return true;
}

bool Plan::has(std::string_view name) const {
  return std::any_of(settings_.begin(), settings_.end(), [&](const auto& setting) { return setting.first == name; });
}

Value Plan::value(std::string_view name) const { return find_field(name)->get(config); }

std::vector<std::string> Plan::lost(const std::string& why) const {
  std::vector<std::string> lines;
  for (const auto& [name, text] : settings_) {
    const std::string shown = text.find_first_of(" {\"'*") == std::string::npos ? text : concat("'", text, "'");
    lines.push_back(concat("--", name, " ", shown, ": ", why));
  }
  return lines;
}

}  // namespace tessera::config
