#include <tessera/config/hf/fsdp_config.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/hf/xla_fsdp.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

constexpr std::string_view kWhole = "parameters keep their identity here, so every optimizer and every grouping works";
constexpr std::string_view kXla = "it is for xla, which is off";

constexpr std::array keys{
    KeyRow{"sharding_strategy", "strategy"},
    KeyRow{"reshard_after_forward", "reshard_after_forward", Effect::acts,
           "a boolean, the strategy's name (version 1), or the ranks that share shards"},
    KeyRow{"offload_params", "cpu_offload", Effect::acts, "parameters, gradients and the optimizer's step"},
    KeyRow{"cpu_offload", "cpu_offload"},
    KeyRow{"auto_wrap_policy", "auto_wrap_policy"},
    KeyRow{"wrap_policy", "auto_wrap_policy", Effect::acts, "the Hugging Face FSDP guide's word"},
    KeyRow{"transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap"},
    KeyRow{"transformer_cls_names_to_wrap", "transformer_layer_cls_to_wrap", Effect::acts, "accelerate's plugin"},
    KeyRow{"min_num_params", "min_num_params"},
    KeyRow{"min_num_param", "min_num_params", Effect::acts, "the guide's word"},
    KeyRow{"backward_prefetch", "backward_prefetch"},
    KeyRow{"backward_prefetch_policy", "backward_prefetch", Effect::acts, "the guide's word, which accelerate ignores"},
    KeyRow{"forward_prefetch", "forward_prefetch"},
    KeyRow{"limit_all_gathers", "limit_all_gathers"},
    KeyRow{"sync_module_states", "sync_module_states"},
    KeyRow{"cpu_ram_efficient_loading", "cpu_ram_efficient_loading"},
    KeyRow{"activation_checkpointing", "gradient_checkpointing"},
    KeyRow{"ignored_modules", "ignored_modules"},
    KeyRow{"mixed_precision_policy", "param_dtype", Effect::acts, "a word, or an object of dtypes"},
    KeyRow{"mixed_precision", "param_dtype", Effect::acts, "a word, or an object of dtypes"},
    KeyRow{"param_dtype", "param_dtype"},
    KeyRow{"reduce_dtype", "reduce_dtype"},
    KeyRow{"buffer_dtype", "buffer_dtype"},
    KeyRow{"shard_group_size", "shard_group_size"},
    KeyRow{"version", "", Effect::ignored, "one engine implements both versions"},
    KeyRow{"state_dict_type", "save_state_dict_type", Effect::acts,
           "SHARDED_STATE_DICT, FULL_STATE_DICT; LOCAL_STATE_DICT is written as sharded"},
    KeyRow{"state_dict_config", "", Effect::ignored, "state_dict_type determines the files and their writers"},
    KeyRow{"optim_state_dict_config", "", Effect::ignored, "state_dict_type determines the files and their writers"},
    KeyRow{"use_orig_params", "", Effect::ignored, kWhole},
    KeyRow{"xla", "device", Effect::acts, "true: --device xla"},
    KeyRow{"xla_fsdp_v2", "xla_fsdp_v2", Effect::acts, "with xla: true"},
    KeyRow{"xla_fsdp_settings", "reshard_after_forward", Effect::acts, "torch_xla's arguments: docs/tpu.md"},
    KeyRow{"xla_fsdp_grad_ckpt", "gradient_checkpointing", Effect::acts, "with xla: true"},
};
constexpr std::array precision_keys{
    KeyRow{"param_dtype", "param_dtype"},
    KeyRow{"reduce_dtype", "reduce_dtype"},
    KeyRow{"buffer_dtype", "buffer_dtype"},
    KeyRow{"output_dtype", "", Effect::ignored,
           "outputs keep the precision in which the model computes them; the loss is fp32"},
    KeyRow{"cast_forward_inputs", "", Effect::ignored, "inputs of language models are token ids"},
    KeyRow{"cast_root_forward_inputs", "", Effect::ignored, "inputs of language models are token ids"},
    KeyRow{"keep_low_precision_grads", "", Effect::ignored, "gradients of the shards are fp32"},
};

constexpr std::string_view prefix = "fsdp_";
constexpr std::size_t kMostUnknown = 20;  // unknown keys per file that are compared with the known ones

std::string_view without_prefix(std::string_view name) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

class FsdpReader {
 public:
  explicit FsdpReader(Problems& problems, std::optional<Compat> compat = {})
      : to_(problems), problems_(problems), compat_(compat) {}

  void read_section(const Value& section) {
    if (!section.is_object())
      return to_.problem(section.where(), "expected an object with keys such as transformer_layer_cls_to_wrap");
    for (const auto& [name, value] : section.members()) {
      const bool asked = !value.is_null() && !means_no(value);
      if (without_prefix(name) == "xla") xla_ = asked;
      if (without_prefix(name) == "xla_fsdp_v2") xla_v2_ = asked;
    }
    const auto known = [](const Value::Member& member) {
      return member.first.starts_with('_') || std::any_of(keys.begin(), keys.end(), [&](const KeyRow& row) {
               return row.key == without_prefix(member.first);
             });
    };
    // A file without any known key belongs to another system; its keys are not merely unknown.
    passes_over_ = problems_.unknown != UnknownWords::refuse &&
                   std::any_of(section.members().begin(), section.members().end(), known);
    for (const auto& [name, value] : section.members()) read_key(name, value, keys);
    if (unknown_ > kMostUnknown) problem(section.where(), unknown_ - kMostUnknown, " more unknown keys");
    if (version_ == 2 && compat_ == Compat::v4 && !to_.given("reshard_after_forward") && !to_.given("strategy")) {
      to_.give("reshard_after_forward", "version", "false", version_where_);
      to_.note(version_where_,
               "version 2 keeps gathered parameters from forward to backward, as transformers 4 does: "
               "reshard_after_forward is false");
    }
  }

  Translation take() { return to_.take(); }

 private:
  template <class... Parts>
  void problem(const SourcePos& where, const Parts&... parts) {
    to_.problem(where, concat(parts...));
  }

  void read_key(const std::string& name, const Value& value, std::span<const KeyRow> known) {
    const std::string_view bare = without_prefix(name);
    const auto found = std::find_if(known.begin(), known.end(), [&](const KeyRow& row) { return row.key == bare; });
    if (found == known.end()) return unknown(name, value, known);
    if (value.is_null()) return;
    if (bare == "version") return version(name, value);
    if (bare == "xla") return means_no(value) ? void() : to_.give("device", name, std::string("xla"), value.where());
    if (bare == "use_orig_params" && !means_no(value)) return;  // always the case here
    if (bare.starts_with("xla_")) return of_xla(bare, *found, name, value);
    if (found->effect != Effect::acts) return to_.follow(*found, name, value);
    if (value.is_array() && value.items().empty()) return;
    if (bare == "reshard_after_forward") return reshard(name, value);
    if (found->setting == "cpu_offload") return offload(name, value);
    if (bare.starts_with("mixed_precision") && value.is_object()) {
      for (const auto& [inner, dtype] : value.members()) read_key(inner, dtype, precision_keys);
      return;
    }
    if (bare.starts_with("mixed_precision") && means_no(value)) return;
    if (found->setting == "min_num_params" && value.is_number() && value.as_real() == 0)
      return;  // Hugging Face's "not given"
    to_.give(found->setting, name, value);
  }

  void unknown(const std::string& name, const Value& value, std::span<const KeyRow> known) {
    if (++unknown_ > kMostUnknown) return;
    if (name.starts_with('_')) return to_.ignored(value, name.substr(0, 64), "it is a comment");
    std::vector<std::string> names;
    for (const KeyRow& row : known) names.emplace_back(row.key);
    const std::string_view bare = without_prefix(name);
    const auto near = bare.size() > 64 ? std::nullopt : nearest(bare, names);
    // accelerate and transformers read only the keys they know
    const bool passes = passes_over_ && known.data() == keys.data();
    const std::string said =
        concat("unknown key ", name.substr(0, 64), name.size() > 64 ? "..." : "",
               passes ? ", which accelerate and transformers ignore, has no effect" : "",
               near     ? concat("; did you mean ", bare.size() < name.size() ? prefix : "", *near, "?")
               : passes ? ""
                        : concat("; the keys are ", join(names)));
    if (passes) return to_.note(value.where(), said);
    if (near)
      for (const KeyRow& row : known)
        if (row.key == *near && !row.setting.empty()) problems_.doubtful.emplace(row.setting);
    problem(value.where(), said);
  }

  void version(const std::string& name, const Value& value) {
    const auto text = as_text(value, true);
    if (text != "1" && text != "2") return problem(value.where(), name, " must be 1 or 2 (one engine implements both)");
    version_ = text == "2" ? 2 : 1;
    version_where_ = value.where();
  }

  void of_xla(std::string_view bare, const KeyRow& row, const std::string& name, const Value& value) {
    if (means_no(value) || (value.is_object() && value.members().empty())) return;
    if (!xla_) return to_.ignored(value, name, kXla);
    if (bare == "xla_fsdp_settings") return translate_xla_fsdp(value, xla_v2_, to_);
    row.effect == Effect::acts ? to_.give(row.setting, name, value) : to_.ignored(value, name, row.why);
  }

  /// Reads reshard_after_forward. Version 2: a boolean, or the group size; version 1: documented as the new name of the
  /// strategy.
  void reshard(const std::string& name, const Value& value) {
    const std::string text = as_text(value, true).value_or("");
    if (value.kind() != Value::Kind::boolean && parse_int(text) && text != "0" && text != "1") {
      to_.note(value.where(), concat(name, " ", text, " is interpreted as the size of the groups that share shards"));
      return to_.give("shard_group_size", name, value);
    }
    RunConfig scratch;
    if (!parse_bool(text) && !find_field("strategy")->set(scratch, text)) return to_.give("strategy", name, value);
    if (const auto word = parse_bool(text))
      return to_.give("reshard_after_forward", name, std::string(*word ? "true" : "false"), value.where());
    to_.give("reshard_after_forward", name, value);
  }

  /// FSDP's CPUOffload keeps parameters, gradients and the optimizer step on the host; our own words are finer.
  void offload(const std::string& name, const Value& value) {
    if (value.is_object()) {
      for (const auto& [inner, flag] : value.members()) {
        if (without_prefix(inner) == "offload_params")
          offload(inner, flag);
        else if (inner == "pin_memory")
          to_.ignored(flag, inner, "offloaded memory is mapped from files");
        else
          problem(flag.where(), "unknown key ", inner, "; did you mean offload_params?");
      }
      return;
    }
    const auto text = as_text(value, false);
    const auto flag = text ? parse_bool(*text) : std::nullopt;
    if (flag) return to_.give("cpu_offload", name, std::string(*flag ? "all" : "none"), value.where());
    to_.give("cpu_offload", name, value);
  }

  Translator to_;
  Problems& problems_;
  std::optional<Compat> compat_;
  bool xla_ = false, xla_v2_ = false, passes_over_ = false;
  std::size_t unknown_ = 0;
  int version_ = 0;  ///< 0: not given
  SourcePos version_where_;
};

Value read(const std::string& given) {
  if (trim(given).starts_with("{")) return parse_json(given, "fsdp_config");
  return read_settings_file(fsdp_config_path(given), "--fsdp_config");
}

}  // namespace

std::string fsdp_config_path(const std::string& given) {
  if (is_directory(given)) {
    std::vector<std::string> files;
    for (const std::string& name : list_folder(given))
      if (const std::string lower = to_lower(name);
          lower.ends_with(".json") || lower.ends_with(".yaml") || lower.ends_with(".yml"))
        files.push_back(name);
    if (files.size() == 1) return path_join(given, files[0]);
    throw InputError(concat("--fsdp_config ", given, " is a folder with ", files.size(),
                            " .json and .yaml files; specify the file"));
  }
  if (!path_exists(given))
    throw InputError(concat("--fsdp_config ", given, ": no such file (a JSON object starts with '{')"));
  return given;
}

Translation read_fsdp_section(const Value& section, Problems& problems, std::optional<Compat> compat) {
  FsdpReader reader(problems, compat);
  reader.read_section(section);
  return reader.take();
}

std::span<const KeyRow> fsdp_keys() { return keys; }

Translation read_fsdp_config(const std::string& given, Problems& problems, std::optional<Compat> compat) {
  FsdpReader reader(problems, compat);
  try {
    const Value file = read(given);
    const Value* section = file.is_object() ? file.find("fsdp_config") : nullptr;
    reader.read_section(section != nullptr ? *section : file);
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
  }
  return reader.take();
}

}  // namespace tessera::config
