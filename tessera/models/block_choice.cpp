#include <tessera/models/block_choice.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <utility>

namespace tessera::models {
namespace {

/// Whether a parameter's name lies below a module's.
bool lies_in(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

}  // namespace

Value BlockChoice::smaller(Value hf_config) const {
  const char* key = nullptr;
  for (const char* name : {"num_hidden_layers", "n_layer", "num_layers"})
    if (const Value* value = hf_config.find(name); key == nullptr && value != nullptr && value->is_number()) key = name;
  if (key == nullptr) throw InputError("layer_reduction: the model's config.json does not say how many layers it has");
  const std::int64_t all = hf_config.at(key).as_int(), most = *std::max_element(blocks.begin(), blocks.end());
  if (most >= all)
    throw InputError(concat("layer_reduction.teacher_layer names layer ", most, ", but the model has ", all,
                            ", numbered from 0: name layers of the model in --model_name_or_path, or set enabled to "
                            "false where it has been reduced already"));
  hf_config.set(key, Value::of(static_cast<std::int64_t>(blocks.size())));
  if (const Value* types = hf_config.find("layer_types");
      types != nullptr && types->is_array() && static_cast<std::int64_t>(types->items().size()) == all) {
    Value kept = Value::make_array();
    for (const std::int64_t block : blocks) kept.push_back(types->items()[static_cast<std::size_t>(block)]);
    hf_config.set("layer_types", std::move(kept));
  }
  return hf_config;
}

std::optional<std::string> BlockChoice::renamed(const std::string& name) const {
  if (!lies_in(name, prefix)) return takes(name) ? std::optional(name) : std::nullopt;
  const std::size_t begin = prefix.size() + 1, dot = name.find('.', begin);
  const auto number = dot == std::string::npos ? std::nullopt : parse_int(name.substr(begin, dot - begin));
  if (!number) return std::nullopt;
  const auto found = std::find(blocks.begin(), blocks.end(), *number);
  if (found == blocks.end()) return std::nullopt;
  return concat(prefix, ".", found - blocks.begin(), name.substr(dot));
}

bool BlockChoice::takes(const std::string& name) const {
  if (lies_in(name, prefix)) return true;
  return std::any_of(others.begin(), others.end(), [&](const std::string& module) { return lies_in(name, module); });
}

}  // namespace tessera::models
