#include <tessera/config/fsdp_config.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/fields.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

/// What becomes of a key. `setting` empty: nothing, for the reason in `note`.
struct Key {
  std::string_view name, setting, note = {};
};

constexpr std::string_view kWhole = "parameters keep their identity here, so every optimizer and every grouping works";
constexpr std::string_view kXla = "it belongs to xla, which is off";

// clang-format off
constexpr std::array keys{
    Key{"sharding_strategy", "strategy"},
    Key{"reshard_after_forward", "reshard_after_forward"},
    Key{"offload_params", "cpu_offload"},
    Key{"cpu_offload", "cpu_offload"},
    Key{"auto_wrap_policy", "auto_wrap_policy"},
    Key{"wrap_policy", "auto_wrap_policy"},                            // the Hugging Face FSDP guide's word
    Key{"transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap"},
    Key{"transformer_cls_names_to_wrap", "transformer_layer_cls_to_wrap"},  // accelerate's plugin
    Key{"min_num_params", "min_num_params"},
    Key{"min_num_param", "min_num_params"},                            // the guide's word
    Key{"backward_prefetch", "backward_prefetch"},
    Key{"backward_prefetch_policy", "backward_prefetch"},              // the guide's word, which accelerate ignores
    Key{"forward_prefetch", "forward_prefetch"},
    Key{"limit_all_gathers", "limit_all_gathers"},
    Key{"sync_module_states", "sync_module_states"},
    Key{"cpu_ram_efficient_loading", "cpu_ram_efficient_loading"},
    Key{"activation_checkpointing", "gradient_checkpointing"},
    Key{"ignored_modules", "ignored_modules"},
    Key{"mixed_precision_policy", "param_dtype"},
    Key{"mixed_precision", "param_dtype"},
    Key{"param_dtype", "param_dtype"},
    Key{"reduce_dtype", "reduce_dtype"},
    Key{"buffer_dtype", "buffer_dtype"},
    Key{"shard_group_size", "shard_group_size"},
    Key{"version", ""},
    Key{"state_dict_type", ""},
    Key{"use_orig_params", "", kWhole},
    Key{"xla", ""},
    Key{"xla_fsdp_v2", "", kXla},
    Key{"xla_fsdp_settings", "", kXla},
    Key{"xla_fsdp_grad_ckpt", "", kXla},
};
constexpr std::array precision_keys{
    Key{"param_dtype", "param_dtype"},
    Key{"reduce_dtype", "reduce_dtype"},
    Key{"buffer_dtype", "buffer_dtype"},
    Key{"output_dtype", "", "outputs keep the precision in which the model computes them; the loss is fp32"},
    Key{"cast_forward_inputs", "", "inputs of a model of text are token ids"},
    Key{"cast_root_forward_inputs", "", "inputs of a model of text are token ids"},
    Key{"keep_low_precision_grads", "", "gradients of the shards are fp32"},
};
// clang-format on

constexpr std::string_view prefix = "fsdp_";

std::string_view without_prefix(std::string_view name) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

/// A scalar, or a list of words, as the text of a flag; nullopt for other kinds.
std::optional<std::string> as_text(const Value& value, bool integer) {
  const auto whole = [&](double real) { return integer && real >= 0 && real < 9e15 && real == static_cast<double>(static_cast<std::int64_t>(real)); };
  switch (value.kind()) {
    case Value::Kind::boolean:
      return value.as_bool() ? "true" : "false";
    case Value::Kind::integer:
      return std::to_string(value.as_int());
    case Value::Kind::real:  // 1e8
      return whole(value.as_real()) ? std::to_string(static_cast<std::int64_t>(value.as_real())) : format_real(value.as_real());
    case Value::Kind::string: {
      const std::string text = trim(value.as_string());
      if (const auto real = parse_real(text); real && whole(*real)) return std::to_string(static_cast<std::int64_t>(*real));  // YAML 1.1 reads 1e8 as text
      return text;
    }
    case Value::Kind::array: {
      std::vector<std::string> words;
      for (const Value& item : value.items()) {
        if (!item.is_string()) return std::nullopt;
        words.push_back(trim(item.as_string()));
      }
      return join(words, ",");
    }
    default:
      return std::nullopt;
  }
}

class Reader {
 public:
  explicit Reader(Problems& problems) : problems_(problems) {}

  void read_section(const Value& section) {
    if (!section.is_object()) return problem(section.where(), "expected an object with keys such as transformer_layer_cls_to_wrap");
    for (const auto& [name, value] : section.members()) read_key(name, value, keys);
  }

  FsdpFile take() { return std::move(out_); }

 private:
  template <class... Parts>
  void problem(const SourcePos& where, const Parts&... parts) {
    problems_.lines.push_back(concat(where.str(), ": ", parts...));
  }
  void note(const Value& value, const std::string& name, std::string_view why) {
    out_.notes.push_back(concat(file_and_line(value.where()), ": ", name, " has no effect: ", why));
  }

  void read_key(const std::string& name, const Value& value, std::span<const Key> known) {
    const std::string_view bare = without_prefix(name);
    const auto found = std::find_if(known.begin(), known.end(), [&](const Key& key) { return key.name == bare; });
    if (found == known.end()) return unknown(name, value, known);
    if (value.is_null()) return;
    if (bare == "version") return version(name, value);
    if (bare == "state_dict_type") return state_dict_type(name, value);
    if (bare == "xla") return xla(value);
    if (found->setting.empty()) return note(value, name, found->note);
    if (bare == "reshard_after_forward") return reshard(name, value);
    if (found->setting == "cpu_offload") return offload(name, value);
    if (bare.starts_with("mixed_precision") && value.is_object()) {
      for (const auto& [inner, dtype] : value.members()) read_key(inner, dtype, precision_keys);
      return;
    }
    if (bare.starts_with("mixed_precision") && off(value)) return;
    if (found->setting == "min_num_params" && value.is_number() && value.as_real() == 0) return;  // Hugging Face's "not given"
    give(std::string(found->setting), name, value);
  }

  /// "no" in its many spellings.
  static bool off(const Value& value) {
    const auto text = as_text(value, false);
    return text && parse_bool(*text) == false;
  }

  void unknown(const std::string& name, const Value& value, std::span<const Key> known) {
    std::vector<std::string> names;
    for (const Key& key : known) names.emplace_back(key.name);
    const std::string_view bare = without_prefix(name);
    const auto near = nearest(bare, names);
    if (near)
      for (const Key& key : known)
        if (key.name == *near && !key.setting.empty()) problems_.doubtful.emplace(key.setting);
    problem(value.where(), "unknown key ", name,
            near ? concat("; did you mean ", bare.size() < name.size() ? prefix : "", *near, "?")
                 : concat("; the keys are ", join(names)));
  }

  void give(std::string setting, const std::string& key, const Value& value) {
    const Field* field = find_field(setting);
    const auto text = as_text(value, std::holds_alternative<std::int64_t& (*)(RunConfig&)>(field->access));
    if (!text) {
      problems_.doubtful.insert(setting);
      return problem(value.where(), key, " takes ", field->rule.words.empty() ? field->placeholder() : field->rule.describe(),
                     ", not an object or a list of something else than words");
    }
    give_text(std::move(setting), key, *text, value.where());
  }

  void give_text(std::string setting, const std::string& key, const std::string& text, const SourcePos& where) {
    RunConfig first, second;  // what two spellings mean, not how they are written
    const Field* field = find_field(setting);
    if (const auto wrong = field->set(second, text)) {
      problems_.doubtful.insert(setting);
      return problem(where, key, " ", *wrong);
    }
    for (const FileSetting& before : out_.settings) {
      if (before.name != setting) continue;
      field->set(first, before.text);
      if (dump_json(field->get(first)) == dump_json(field->get(second))) return;
      problems_.doubtful.insert(setting);
      return problem(where, key, " ", text, " contradicts ", before.key, " ", before.text, " in line ", before.where.line);
    }
    out_.settings.push_back({std::move(setting), text, key, where});
  }

  void version(const std::string& name, const Value& value) {
    const auto text = as_text(value, true);
    if (text != "1" && text != "2") problem(value.where(), name, " must be 1 or 2 (one engine here does what both do)");
  }

  void state_dict_type(const std::string& name, const Value& value) {
    const std::string text = to_lower(as_text(value, true).value_or("?"));
    if (text == "full_state_dict" || text == "1") return;
    if (text == "sharded_state_dict" || text == "3")
      return note(value, name, "checkpoints hold whole tensors, written one by one, which every strategy and number of processes reads");
    if (text == "local_state_dict" || text == "2")
      return problem(value.where(), name, " LOCAL_STATE_DICT fits one number of processes only and is not written; "
                     "use FULL_STATE_DICT: it is gathered tensor by tensor");
    problem(value.where(), name, " must be one of FULL_STATE_DICT, SHARDED_STATE_DICT");
  }

  void xla(const Value& value) {
    if (off(value)) return;
    problem(value.where(), "xla is for TPUs, which are not supported: leave it out; on CPUs and GPUs the same strategies "
            "come with --fsdp full_shard");
  }

  /// version 2: a boolean, or the size of the group; version 1: documented as the strategy's new name.
  void reshard(const std::string& name, const Value& value) {
    const std::string text = as_text(value, true).value_or("");
    if (value.kind() != Value::Kind::boolean && parse_int(text) && text != "0" && text != "1") {
      out_.notes.push_back(concat(file_and_line(value.where()), ": ", name, " ", text, " is taken as the size of the groups that share shards"));
      return give("shard_group_size", name, value);
    }
    RunConfig scratch;
    if (!parse_bool(text) && !find_field("strategy")->set(scratch, text)) return give("strategy", name, value);
    if (const auto word = parse_bool(text)) return give_text("reshard_after_forward", name, *word ? "true" : "false", value.where());
    give("reshard_after_forward", name, value);
  }

  /// FSDP's CPUOffload keeps parameters, gradients and the optimizer step on the host; our own words say more.
  void offload(const std::string& name, const Value& value) {
    if (value.is_object()) {
      for (const auto& [inner, flag] : value.members()) {
        if (without_prefix(inner) == "offload_params") offload(inner, flag);
        else if (inner == "pin_memory") note(flag, inner, "offloaded memory is mapped from files");
        else problem(flag.where(), "unknown key ", inner, "; did you mean offload_params?");
      }
      return;
    }
    const auto text = as_text(value, false);
    const auto flag = text ? parse_bool(*text) : std::nullopt;
    if (flag) return give_text("cpu_offload", name, *flag ? "all" : "none", value.where());
    give("cpu_offload", name, value);
  }

  Problems& problems_;
  FsdpFile out_;
};

Value read(const std::string& given) {
  if (trim(given).starts_with("{")) return parse_json(given, "fsdp_config");
  if (!path_exists(given)) throw InputError(concat("--fsdp_config ", given, ": no such file (a JSON object begins with '{')"));
  if (is_directory(given)) throw InputError(concat("--fsdp_config ", given, " is a folder; expected a JSON or YAML file"));
  const std::string lower = to_lower(given);
  return lower.ends_with(".yaml") || lower.ends_with(".yml") ? read_yaml(given) : read_json(given);
}

}  // namespace

std::string file_and_line(const SourcePos& where) {
  return concat(where.file ? *where.file : std::string("(program)"), ":", where.line);
}

FsdpFile read_fsdp_config(const std::string& given, Problems& problems) {
  Reader reader(problems);
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
