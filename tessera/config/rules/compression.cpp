#include <tessera/config/rules/compression.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/json/json_lenient.h>
#include <tessera/base/names/pattern.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/core/translation.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace tessera::config {
namespace {

constexpr std::string_view root_name = "compression_training";
constexpr std::size_t most_problems = 20;
constexpr std::uint64_t most_bytes = 1 << 20;

/// The keys of a DeepSpeed method.
struct MethodKeys {
  std::string_view name;
  std::vector<std::string> shared, params;
  std::string_view refused;  ///< why it cannot be enabled, and the remedy
};
const std::vector<MethodKeys>& methods() {
  static const std::vector<MethodKeys> all = {
      {"weight_quantization",
       {"enabled", "quantizer_kernel", "schedule_offset", "quantize_groups", "quantize_verbose", "quantization_type",
        "quantize_weight_in_forward", "rounding", "fp16_mixed_quantize"},
       {"start_bits", "target_bits", "quantization_period"},
       ""},
      {"activation_quantization",
       {"enabled", "quantization_type", "range_calibration", "schedule_offset"},
       {"bits"},
       ""},
      {"sparse_pruning",
       {"enabled", "schedule_offset", "schedule_offset_end", "schedule_offset_stride", "method", "dense_ratio",
        "block_pattern", "excluded_modules"},
       {"dense_ratio"},
       "pruning single weights is not implemented; set enabled to false"},
      {"row_pruning",
       {"enabled", "schedule_offset", "method"},
       {"dense_ratio"},
       "pruning rows of weights is not implemented; set enabled to false"},
      {"head_pruning",
       {"enabled", "schedule_offset", "method", "num_heads"},
       {"dense_ratio"},
       "pruning heads of attention is not implemented; set enabled to false"},
      {"channel_pruning",
       {"enabled", "schedule_offset", "method"},
       {"dense_ratio"},
       "channels belong to convolutions, which no model here has; set enabled to false"},
  };
  return all;
}
const std::vector<std::string> reduction_keys = {"enabled", "keep_number_layer", "module_name_prefix", "teacher_layer",
                                                 "other_module_name"};

class SectionReader {
 public:
  explicit SectionReader(CompressionRemarks& remarks) : remarks_(remarks) {}

  Compression read(const Value& section) {
    Compression compression;
    const std::string path(root_name);
    if (!is_object(section, path)) return compression;
    std::vector<std::string> names = {"layer_reduction"};
    for (const MethodKeys& method : methods()) names.emplace_back(method.name);
    known(section, path, names);
    if (const Value* reduction = section.find("layer_reduction")) read_reduction(*reduction, compression);
    for (const MethodKeys& keys : methods())
      if (const Value* method = section.find(keys.name)) read_method(*method, keys, compression);
    return compression;
  }

 private:
  template <class... Parts>
  void problem(const SourcePos& where, const Parts&... parts) {
    if (remarks_.problems.size() < most_problems) remarks_.problems.push_back({where, concat(parts...)});
  }
  template <class... Parts>
  void note(const SourcePos& where, const Parts&... parts) {
    remarks_.notes.push_back({where, concat(parts...)});
  }

  static std::string shown(const Value& value) {
    const auto text = as_text(value, true);
    if (!text) return value.is_object() ? "{...}" : "[...]";
    return concat("'", text->size() > 80 ? concat(text->substr(0, 80), "...") : *text, "'");
  }

  bool is_object(const Value& value, const std::string& path) {
    if (value.is_null()) return false;
    if (!value.is_object()) problem(value.where(), path, " is ", shown(value), "; it must be an object {...}");
    return value.is_object();
  }

  void known(const Value& object, const std::string& path, const std::vector<std::string>& names) {
    for (const auto& [name, value] : object.members()) {
      if (name.starts_with('_') || std::find(names.begin(), names.end(), name) != names.end()) continue;
      const bool is_long = name.size() > 80;
      const auto near = is_long ? std::nullopt : nearest(name, names);
      problem(value.where(), "unknown key ", path, ".", is_long ? concat(name.substr(0, 80), "...") : name,
              near ? concat("; did you mean ", *near, "?") : concat("; the keys are ", join(names)));
    }
  }

  bool flag(const Value& value, const std::string& path) {
    const auto text = as_text(value, false);
    const auto read = text ? parse_bool(*text) : std::nullopt;
    if (!read) problem(value.where(), path, " is ", shown(value), "; it must be true or false");
    return read.value_or(false);
  }
  bool flag_of(const Value& section, const std::string& path, const char* name) {
    const Value* value = section.find(name);
    return value && !value->is_null() && flag(*value, concat(path, ".", name));
  }

  std::int64_t whole(const Value& section, const std::string& path, const char* name, std::int64_t otherwise,
                     std::int64_t least, std::int64_t most = std::int64_t{1} << 40) {
    const Value* value = section.find(name);
    if (!value || value->is_null()) return otherwise;
    const auto text = as_text(*value, true);
    const auto read = text ? parse_int(*text) : std::nullopt;
    if (read && *read >= least && *read <= most) return *read;
    problem(value->where(), path, ".", name, " is ", shown(*value), "; it must be a whole number from ", least, " to ",
            most);
    return otherwise;
  }

  /// Whether the value is the second of two words; by default it is `first`.
  bool second_word(const Value& section, const std::string& path, const char* name, std::string_view first,
                   std::string_view second) {
    const Value* value = section.find(name);
    if (!value || value->is_null()) return false;
    const std::string text = value->is_string() ? to_lower(trim(value->as_string())) : std::string();
    if (text != first && text != second)
      problem(value->where(), path, ".", name, " is ", shown(*value), "; it must be one of ", first, ", ", second);
    return text == second;
  }

  void read_reduction(const Value& value, Compression& compression) {
    const std::string path = concat(root_name, ".layer_reduction");
    if (!is_object(value, path)) return;
    known(value, path, reduction_keys);
    if (!flag_of(value, path, "enabled")) return;
    const std::size_t before = remarks_.problems.size();
    LayerReduction layers;
    const Value *prefix = value.find("module_name_prefix"), *numbers = value.find("teacher_layer"),
                *others = value.find("other_module_name");
    if (prefix && prefix->is_string())
      layers.module_name_prefix = prefix->as_string();
    else
      problem(prefix ? prefix->where() : value.where(), path,
              ".module_name_prefix must be the prefix of the layers' names, such as transformer.h");
    if (numbers && numbers->is_array() && !numbers->items().empty() && numbers->items().size() <= 10'000)
      for (const Value& item : numbers->items()) {
        const auto text = as_text(item, true);
        const auto number = text ? parse_int(*text) : std::nullopt;
        const bool again = number && std::find(layers.teacher_layer.begin(), layers.teacher_layer.end(), *number) !=
                                         layers.teacher_layer.end();
        if (!number || *number < 0 || again)
          problem(item.where(), path, ".teacher_layer has ", shown(item),
                  again ? " twice; list each layer once" : "; it must be a list of whole numbers from 0 on");
        else
          layers.teacher_layer.push_back(*number);
      }
    else
      problem(numbers ? numbers->where() : value.where(), path,
              ".teacher_layer must be a list of the layers to copy, counted from 0");
    const auto count = static_cast<std::int64_t>(layers.teacher_layer.size());
    if (before == remarks_.problems.size() && whole(value, path, "keep_number_layer", count, 1) != count)
      problem(value.at("keep_number_layer").where(), path, ".keep_number_layer is ",
              shown(value.at("keep_number_layer")), ", but teacher_layer contains ", count,
              " layers; the numbers must be equal");
    const bool listed =
        others && others->is_array() &&
        std::all_of(others->items().begin(), others->items().end(), [](const Value& item) { return item.is_string(); });
    if (others && !others->is_null() && !listed)
      problem(others->where(), path, ".other_module_name is ", shown(*others), "; it must be a list of module names");
    if (listed)
      for (const Value& item : others->items()) layers.other_module_name.push_back(item.as_string());
    if (remarks_.problems.size() == before) compression.layers = std::move(layers);
  }

  void read_method(const Value& value, const MethodKeys& keys, Compression& compression) {
    const std::string path = concat(root_name, ".", keys.name), shared_path = path + ".shared_parameters",
                      groups_path = path + ".different_groups";
    if (!is_object(value, path)) return;
    known(value, path, {"shared_parameters", "different_groups"});
    const Value *shared = value.find("shared_parameters"), *groups = value.find("different_groups");
    if (groups && is_object(*groups, groups_path))
      for (const auto& [name, group] : groups->members()) check_group(group, concat(groups_path, ".", name), keys);
    if (!shared || !is_object(*shared, shared_path)) return;
    known(*shared, shared_path, keys.shared);
    if (!flag_of(*shared, shared_path, "enabled")) return;
    if (!keys.refused.empty()) return problem(shared->at("enabled").where(), shared_path, ".enabled: ", keys.refused);
    const std::size_t before = remarks_.problems.size();
    const bool of_weights = keys.name == "weight_quantization";
    CompressionMethod method;
    method.schedule_offset = whole(*shared, shared_path, "schedule_offset", of_weights ? 0 : 1000, 0);
    method.asymmetric = second_word(*shared, shared_path, "quantization_type", "symmetric", "asymmetric");
    if (of_weights)
      read_weights(*shared, shared_path, method);
    else
      method.running_range = second_word(*shared, shared_path, "range_calibration", "dynamic", "static");
    if (!groups || !groups->is_object() || groups->members().empty())
      problem(groups && !groups->is_null() ? groups->where() : value.where(), groups_path,
              " must select modules: {\"name\": {\"params\": {...}, \"modules\": [...]}}");
    else
      for (const auto& [name, group] : groups->members())
        read_group(name, group, concat(groups_path, ".", name), of_weights, method);
    if (remarks_.problems.size() == before) (of_weights ? compression.weights : compression.inputs) = std::move(method);
  }

  void check_group(const Value& group, const std::string& path, const MethodKeys& keys) {
    if (!is_object(group, path)) return;
    known(group, path, {"params", "modules", "related_modules"});
    if (const Value* params = group.find("params"); params && is_object(*params, path + ".params"))
      known(*params, path + ".params", keys.params);
  }

  void read_weights(const Value& shared, const std::string& path, CompressionMethod& method) {
    method.in_forward = flag_of(shared, path, "quantize_weight_in_forward");
    method.quantize_groups = whole(shared, path, "quantize_groups", 1, 1);
    method.stochastic = second_word(shared, path, "rounding", "nearest", "stochastic");
    for (const char* name : {"quantizer_kernel", "quantize_verbose"})
      if (flag_of(shared, path, name))
        note(shared.at(name).where(), path, ".", name,
             " has no effect: all devices use one implementation, and the start of the run reports what is quantized");
    if (const Value* mixed = shared.find("fp16_mixed_quantize");
        mixed && is_object(*mixed, path + ".fp16_mixed_quantize")) {
      const std::string inner = path + ".fp16_mixed_quantize";
      known(*mixed, inner, {"enabled", "quantize_change_ratio"});
      if (flag_of(*mixed, inner, "enabled")) {
        const Value* ratio = mixed->find("quantize_change_ratio");
        const auto read = ratio ? parse_real(as_text(*ratio, false).value_or("")) : std::optional(0.001);
        if (read && *read > 0 && *read <= 1)
          method.change_ratio = *read;
        else
          problem(ratio->where(), inner, ".quantize_change_ratio is ", shown(*ratio),
                  "; it must be above 0 and at most 1");
      }
    }
    if (!method.in_forward) return;
    // DeepSpeed does not warn about these either.
    if (method.stochastic)
      note(shared.at("rounding").where(), path,
           ".rounding stochastic has no effect with quantize_weight_in_forward: as in DeepSpeed, forward rounds to "
           "nearest");
    if (method.change_ratio > 0)
      note(shared.at("fp16_mixed_quantize").where(), path,
           ".fp16_mixed_quantize has no effect with quantize_weight_in_forward, as in DeepSpeed");
    method.stochastic = false;
    method.change_ratio = 0;
  }

  void read_group(const std::string& name, const Value& value, const std::string& path, bool of_weights,
                  CompressionMethod& method) {
    if (!value.is_object()) return;
    CompressionGroup group;
    group.name = name;
    const Value* params = value.find("params");
    const auto needs = [&](const char* key) {
      const bool there = params && params->is_object() && params->find(key) && !params->find(key)->is_null();
      if (!there)
        problem(params ? params->where() : value.where(), path, ".params.", key,
                " is missing; it is the number of bits");
      return there;
    };
    if (of_weights) {
      const bool start = needs("start_bits"), target = needs("target_bits");
      if (!start || !target) return;
      group.start_bits = whole(*params, path + ".params", "start_bits", 8, 1, 16);
      group.bits = whole(*params, path + ".params", "target_bits", 8, 1, 16);
      group.period = whole(*params, path + ".params", "quantization_period", 1, 0);
      if (method.in_forward)
        forward_only(*params, path, group);
      else if (group.start_bits < group.bits)
        problem(params->at("start_bits").where(), path, ".params: start_bits ", group.start_bits,
                " is below target_bits ", group.bits, ", but bits only decrease; use at least target_bits");
      const char* const few = group.bits <= 2 ? "target_bits" : nullptr;
      if (few && (method.asymmetric || method.stochastic))
        problem(params->at(few).where(), path, ".params.", few, " is ", group.bits,
                ": one and two bits are symmetric and rounded to nearest; set quantization_type symmetric and rounding "
                "nearest in shared_parameters");
    } else {
      if (!needs("bits")) return;
      group.bits = whole(*params, path + ".params", "bits", 8, 4, 8);
      if (group.bits != 4 && group.bits != 8)
        problem(params->at("bits").where(), path, ".params.bits is '", group.bits, "'; it must be 4 or 8");
      group.start_bits = group.bits;
    }
    read_modules(value, path, group);
    method.groups.push_back(std::move(group));
  }

  void forward_only(const Value& params, const std::string& path, CompressionGroup& group) {
    if (group.start_bits != group.bits)
      note(params.at("start_bits").where(), path, ".params.start_bits ", group.start_bits,
           " has no effect with quantize_weight_in_forward: as in DeepSpeed, weights have target_bits (", group.bits,
           ") from the start");
    group.start_bits = group.bits;
  }

  void read_modules(const Value& value, const std::string& path, CompressionGroup& group) {
    const Value* modules = value.find("modules");
    if (!modules || modules->is_null()) {
      group.modules = {"*"};
      return;
    }
    const bool all_text = modules->is_array() && std::all_of(modules->items().begin(), modules->items().end(),
                                                             [](const Value& item) { return item.is_string(); });
    if (!all_text || modules->items().empty())
      return problem(modules->where(), path, ".modules is ", shown(*modules),
                     "; it must be a list of regular expressions for module names");
    for (const Value& item : modules->items()) {
      group.modules.push_back(item.as_string());
      if (item.as_string() == "*") continue;
      try {
        const Pattern trial(concat(path, ".modules:"), item.as_string());
      } catch (const InputError& error) {
        problem(item.where(), error.what());
      }
    }
  }

  CompressionRemarks& remarks_;
};

/// The section that the setting's text denotes.
Value section_of(const std::string& given) {
  const bool is_text = trim(given).starts_with("{");
  if (!is_text && !path_exists(given))
    throw InputError(concat("--compression_training ", given,
                            ": no such file; use a file with DeepSpeed's section compression_training, or the section "
                            "itself as a JSON object, starting with '{'"));
  if (!is_text && is_directory(given))
    throw InputError(concat("--compression_training ", given, " is a folder; expected a JSON file"));
  Value root = is_text ? parse_hjson(given, std::string(root_name)) : parse_hjson(read_file(given, most_bytes), given);
  const Value* inner = root.is_object() ? root.find(root_name) : nullptr;
  return inner ? *inner : root;
}

}  // namespace

Compression read_compression(const Value& section, CompressionRemarks& remarks) {
  return SectionReader(remarks).read(section);
}

Compression parse_compression(const std::string& text) {
  if (text.empty()) return {};
  CompressionRemarks remarks;
  const Compression compression = read_compression(parse_json(text, std::string(root_name)), remarks);
  if (!remarks.problems.empty())
    throw InputError(concat(remarks.problems.front().where.str(), ": ", remarks.problems.front().text));
  return compression;
}

void settle_compression(Resolved& resolved, Problems& problems) {
  std::string& text = resolved.values.optimization.compression_training;
  if (text.empty() || problems.doubtful.contains("compression_training")) return;
  CompressionRemarks remarks;
  try {
    const Value section = section_of(text);
    const bool any = read_compression(section, remarks).any();
    text = any ? dump_json(section, -1) : std::string();
  } catch (const InputError& error) {
    problems.lines.emplace_back(error.what());
    problems.doubtful.insert("compression_training");
  }
  for (const CompressionRemark& remark : remarks.problems) {
    problems.lines.push_back(concat(remark.where.str(), ": ", remark.text));
    problems.doubtful.insert("compression_training");
  }
  // the reader of DeepSpeed's file has reported its notes
  if (resolved.origin("compression_training").is_flag())
    for (const CompressionRemark& remark : remarks.notes)
      resolved.notes.push_back(concat(remark.where.str(), ": ", remark.text));
}

WeightBits weight_bits(const CompressionMethod& weights, const CompressionGroup& group, std::int64_t steps) {
  const std::int64_t rounds = steps + 1;  // the first step's weights have been rounded once
  std::int64_t last = 0, lost = 0;        // lost: bits lost so far; last: the round that lost the last one
  if (group.period == 0) {
    lost = std::min(rounds, group.start_bits - group.bits);
    last = lost;
  } else {
    for (std::int64_t next = group.period; next <= rounds && lost < group.start_bits - group.bits; next *= 2) {
      ++lost;
      last = next;
    }
  }
  const double exact = weights.change_ratio > 0 ? 1 - weights.change_ratio * static_cast<double>(rounds - last) : 0;
  return {group.start_bits - lost, std::max(0.0, exact)};
}

}  // namespace tessera::config
