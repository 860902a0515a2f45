#include <tessera/launch/cli/training_flags.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/json/json_lenient.h>
#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_environment.h>
#include <tessera/config/accelerate/accelerate_file.h>
#include <tessera/config/hf/fsdp_config.h>
#include <tessera/config/hf/xla_fsdp.h>
#include <tessera/launch/cli/launch_flags.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>

namespace tessera::launch {

namespace {

using C = LaunchCommand;
using V = FlagValues;
using S = const std::string&;

Value of_flag(const std::string& value, const std::string& flag) {
  Value leaf = Value::of(value);
  leaf.set_where(config::flag_position(flag));
  return leaf;
}

/// Returns a key of accelerate's file as an option of its launcher.
LaunchFlag key_flag(std::string name, std::string section, std::string key, bool is_switch = false,
                    std::string help = "", std::string value = "X") {
  return {{"--" + std::move(name)},
          is_switch ? "" : std::move(value),
          std::move(help),
          [section = std::move(section), key = std::move(key), is_switch](C&, V& v, S n, S s) {
            v.training.keys.push_back({section, key, is_switch ? "true" : s, n});
          }};
}

LaunchFlag kind_flag(std::string name, std::string type, std::string help = "") {
  return {{"--" + std::move(name)}, "", std::move(help), [type = std::move(type)](C&, V& v, S n, S) {
            v.training.kinds.emplace_back(type, n);
          }};
}

/// Options of accelerate's launcher that take no value.
bool is_switch(std::string_view key) {
  return key == "dynamo_use_fullgraph" || key == "dynamo_use_dynamic" || key == "dynamo_use_regional_compilation" ||
         key == "fp8_use_autocast_during_eval";
}

/// The words of --fsdp as in Hugging Face's Trainer; "full shard" counts as one.
void fsdp_words(const std::string& given, const std::string& flag, std::vector<TrainingFlags::Key>& keys) {
  static const std::vector<std::pair<std::string, std::pair<std::string, std::string>>> meanings = {
      {"full_shard", {"fsdp_sharding_strategy", "FULL_SHARD"}},
      {"shard_grad_op", {"fsdp_sharding_strategy", "SHARD_GRAD_OP"}},
      {"no_shard", {"fsdp_sharding_strategy", "NO_SHARD"}},
      {"hybrid_shard", {"fsdp_sharding_strategy", "HYBRID_SHARD"}},
      {"hybrid_shard_zero2", {"fsdp_sharding_strategy", "HYBRID_SHARD_ZERO2"}},
      {"true", {"fsdp_sharding_strategy", "FULL_SHARD"}},
      {"offload", {"fsdp_offload_params", "true"}},
      {"auto_wrap", {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}},
      {"transformer_based_auto_wrap", {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}},
      {"size_based_auto_wrap", {"fsdp_auto_wrap_policy", "SIZE_BASED_WRAP"}}};
  const auto meaning = [&](const std::string& word) {
    return std::find_if(meanings.begin(), meanings.end(), [&](const auto& known) { return known.first == word; });
  };
  std::string text = to_lower(given);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::string_view(",[]'\"").find(c) != std::string_view::npos; },
      ' ');
  std::vector<std::string> words;
  for (std::istringstream in(text); in >> text;) words.push_back(text);
  std::vector<std::string> strategies;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if (i + 1 < words.size() && meaning(word + "_" + words[i + 1]) != meanings.end()) word += "_" + words[++i];
    const auto found = meaning(word);
    if (found == meanings.end()) {
      std::vector<std::string> names;
      for (const auto& known : meanings) names.push_back(known.first);
      auto near = nearest(word, names);
      if (!near && i + 1 < words.size()) near = nearest(word + "_" + words[i + 1], names);
      throw InputError(concat("tessera launch: ", flag, ": unknown word '", word, "'",
                              near ? concat("; did you mean ", *near, "?") : "", " (the words are ", join(names), ")"));
    }
    if (found->second.first == "fsdp_sharding_strategy") strategies.push_back(word);
    keys.push_back({"fsdp_config", found->second.first, found->second.second, flag});
  }
  if (strategies.size() > 1)
    throw InputError(concat("tessera launch: ", flag, " ", join(strategies, " and "),
                            " are different strategies; keep one of them"));
  if (strategies.empty() && !words.empty())
    throw InputError(concat("tessera launch: ", flag, " ", join(words, " "),
                            " contains no strategy: use --fsdp \"full_shard ", join(words, " "), "\""));
}

/// Reads the JSON object in the file of --fsdp_config, or in the only file of that folder.
Value read_fsdp_file(const std::string& given) {
  if (trim(given).starts_with("{")) return parse_json(given, "--fsdp_config");
  const std::string path = config::fsdp_config_path(given);
  const std::string text = read_file(path, 256 << 10), lower = to_lower(path);
  Value file = lower.ends_with(".yaml") || lower.ends_with(".yml") ? parse_yaml(text, path) : parse_json(text, path);
  const Value* section = file.is_object() ? file.find("fsdp_config") : nullptr;
  if (section != nullptr) return *section;
  if (!file.is_object()) throw InputError(concat(path, ": expected keys such as fsdp_transformer_layer_cls_to_wrap"));
  return file;
}

/// accelerate's file, with the typed options overriding its values.
class Merged {
 public:
  Merged(V& given, C& command) : given_(given), typed_(given.training), command_(command) {}

  void take() {
    read_file();
    const Value file = root_;
    if (!typed_.fsdp.empty()) {
      fsdp_words(typed_.fsdp, "--fsdp", typed_.keys);
      if (std::any_of(typed_.keys.begin(), typed_.keys.end(), [](const auto& key) { return key.flag == "--fsdp"; }))
        typed_.kinds.emplace_back("FSDP", "--fsdp");
    }
    if (!typed_.fsdp_config.empty()) {
      const Value section = read_fsdp_file(typed_.fsdp_config);
      for (const auto& [key, value] : section.members())
        set("fsdp_config", key.starts_with("fsdp_") ? key : "fsdp_" + key, value);
      typed_.kinds.emplace_back("FSDP", "--fsdp_config");
    }
    for (const TrainingFlags::Key& key : typed_.keys) set(key.section, key.key, of_flag(key.value, key.flag));
    if (typed_.cpu) set("", "use_cpu", of_flag("true", "--cpu"));
    if (root_.members().empty() && typed_.kinds.empty()) return;
    choose_kind();
    tell_replaced(file, root_, "");
    check();
    take_machine();
    export_all();
  }

  /// Path of accelerate's default file if it is in use; otherwise empty.
  const std::string& default_file() const { return default_file_; }

 private:
  void read_file() {
    std::string path = typed_.config_file;
    if (path.empty() && !typed_.cpu &&
        !command_.secret_from_stdin) {  // an agent started by another agent gets all settings explicitly
      const auto usual = config::default_accelerate_file();
      if (!usual) return;
      path = default_file_ = *usual;
      command_.notes.push_back(
          concat("reading settings from ", path, ", as accelerate launch does (--config_file none ignores it)"));
    }
    if (path.empty() || path == "none") return;
    root_ = config::load_accelerate_file(path, &command_.notes);
  }

  /// Options override the file, as in accelerate's launcher; different values are reported.
  void tell_replaced(const Value& file, const Value& now, std::string_view prefix) {
    for (const auto& [key, before] : file.members()) {
      const std::string bare = key.starts_with(prefix) ? key.substr(prefix.size()) : key;
      const Value* after = now.find(key);
      for (const std::string& other : {bare, concat(prefix, bare)})
        if (after == nullptr) after = now.find(other);
      if (after == nullptr) continue;
      if (before.is_object()) {
        tell_replaced(before, *after, config::accelerate_prefix(key));
        continue;
      }
      const auto was = config::as_text(before, true), is = config::as_text(*after, true);
      if (was && is && to_lower(*was) != to_lower(*is))
        command_.notes.push_back(concat(after->where().str(), " ", *is, " overrides ",
                                        config::file_and_line(before.where()), ": ", key, " ", *was));
    }
  }

  /// Replaces the key, regardless of its spelling.
  void set(const std::string& section, const std::string& key, Value value) {
    if (section.empty()) return root_.set(key, std::move(value));
    const std::string_view prefix = config::accelerate_prefix(section);
    const std::string_view bare =
        key.starts_with(prefix) ? std::string_view(key).substr(prefix.size()) : std::string_view(key);
    Value fresh = Value::make_object();
    fresh.set_where(value.where());
    if (const Value* old = root_.find(section); old != nullptr && old->is_object()) {
      fresh.set_where(old->where());
      for (const auto& [name, member] : old->members())
        if (name != key && name != bare) fresh.set(name, member);
    }
    fresh.set(key, std::move(value));
    root_.set(section, std::move(fresh));
  }

  void choose_kind() {
    for (const auto& [type, flag] : typed_.kinds)
      if (type != typed_.kinds[0].first)
        throw InputError(concat("tessera launch: ", typed_.kinds[0].second, " and ", flag,
                                " select different training modes: remove one of them"));
    if (typed_.cpu && !typed_.kinds.empty() && typed_.kinds[0].first == "MULTI_GPU")
      throw InputError(
          concat("tessera launch: --cpu and ", typed_.kinds[0].second, " exclude each other: remove one of them"));
    if (!typed_.kinds.empty()) set("", "distributed_type", of_flag(typed_.kinds[0].first, typed_.kinds[0].second));
    if (root_.find("distributed_type") == nullptr && (typed_.config_file.empty() || typed_.config_file == "none")) {
      root_.set("distributed_type", of_flag("NO", "(no --use_fsdp or --use_deepspeed)"));
      typed_.kinds.emplace_back("NO", "");
    }
    const Value* type = root_.find("distributed_type");
    const std::string kind = type == nullptr ? "" : to_lower(config::as_text(*type, true).value_or(""));
    for (const TrainingFlags::Key& key : typed_.keys)
      for (const auto& [section, needed, how] : {std::array<const char*, 3>{"fsdp_config", "fsdp", "--use_fsdp"},
                                                 {"deepspeed_config", "deepspeed", "--use_deepspeed"},
                                                 {"megatron_lm_config", "megatron_lm", "--use_megatron_lm"}})
        if (key.section == section && kind != needed)
          throw InputError(
              concat("tessera launch: ", key.flag, " needs ", how,
                     " (or a --config_file that sets it); as a setting of tessera train it goes after the program"));
  }

  /// Reports invalid values here rather than in each rank.
  void check() {
    config::Problems problems;
    Value checked = root_;
    const bool counted = given_.total || given_.per_machine || !given_.hostfile.empty() || !given_.host_list.empty();
    if (counted && checked.find("num_processes") != nullptr) checked.set("num_processes", Value());
    if (given_.total && checked.find("parallelism_config") != nullptr)
      checked.set("num_processes", of_flag(std::to_string(*given_.total), "--num_processes"));
    const config::Translation settings = config::read_accelerate(checked, problems);
    for (const config::FileSetting& setting : settings.settings)
      if (setting.name == "deepspeed") check_deepspeed(setting.text, problems);
    if (problems.lines.size() == 1) throw InputError(concat("tessera launch: ", problems.lines[0]));
    config::throw_if_any(problems);
    for (const std::string& note : settings.notes)
      if (note.find("the launcher's") == std::string::npos) command_.notes.push_back(note);
  }

  static void check_deepspeed(const std::string& given, config::Problems& problems) {
    const bool object = trim(given).starts_with("{");
    if (!object && !path_exists(given)) {
      if (given.ends_with(".json") || given.find('/') != std::string::npos ||
          given.size() < 16)  // otherwise it may be base64
        problems.lines.push_back(concat("deepspeed_config_file ", given, ": no such file"));
      return;
    }
    try {
      if (!parse_hjson(object ? given : tessera::read_file(given, 1 << 20), object ? "deepspeed_config_file" : given)
               .is_object())
        problems.lines.push_back(
            concat(given, ": expected a JSON object such as {\"zero_optimization\": {\"stage\": 2}}"));
    } catch (const InputError& error) {
      problems.lines.push_back(error.what());
    }
  }

  /// Takes values from the file where no option sets them.
  void take_machine() {
    config::Problems said_already;
    const config::AccelerateLaunch file = config::accelerate_launch(root_, said_already);
    if (config::asks_for_xla(root_) && given_.total) {  // one process drives this many devices
      root_.set("num_processes", Value::of(static_cast<std::int64_t>(*given_.total)));
      given_.total = 1;
    }
    const Value* type = root_.find("distributed_type");
    const bool deepspeed = type != nullptr && to_lower(config::as_text(*type, true).value_or("")) == "deepspeed";
    if (deepspeed && given_.hostfile.empty() && given_.host_list.empty() && !given_.machines &&
        path_exists(file.hostfile))
      given_.hostfile = file.hostfile;
    if (deepspeed && !given_.hostfile.empty() && given_.include.empty() && given_.exclude.empty()) {
      given_.include = file.inclusion_filter;
      given_.exclude = file.exclusion_filter;
    }
    const bool hosts = !given_.hostfile.empty() || !given_.host_list.empty();
    if (file.num_processes && !given_.total && !given_.per_machine && !hosts)
      given_.total = static_cast<int>(*file.num_processes);
    const int machines = static_cast<int>(file.num_machines.value_or(1));
    if (machines > 1 && !given_.machines && !hosts) {
      given_.machines = machines;
      if (!given_.machine_rank && file.machine_rank) given_.machine_rank = static_cast<int>(*file.machine_rank);
    }
    if (given_.endpoint.empty()) {
      if (given_.address.empty() && !hosts) given_.address = file.main_process_ip;
      if (!given_.port && file.main_process_port) given_.port = static_cast<int>(*file.main_process_port);
    }
    if (file.enable_cpu_affinity) command_.options.bind_cores = true;
    if (!file.gpu_ids.empty())
      command_.exports.insert(command_.exports.begin(), concat("CUDA_VISIBLE_DEVICES=", file.gpu_ids));
  }

  /// Inserted before the exports of --export, which take precedence.
  void export_all() {
    const std::string packed = config::packed_accelerate(root_);
    if (packed.size() > 100'000)
      throw InputError("tessera launch: the training settings do not fit into an environment variable");
    std::vector<std::string> words;
    for (const auto& [name, value] : config::accelerate_variables(root_)) words.push_back(concat(name, "=", value));
    words.push_back(concat(config::accelerate_file_variable, "=", packed));
    command_.exports.insert(command_.exports.begin(), words.begin(), words.end());
  }

  V& given_;
  TrainingFlags& typed_;
  C& command_;
  Value root_ = Value::make_object();
  std::string default_file_;
};

}  // namespace

std::vector<LaunchFlag> training_flags() {
  std::vector<LaunchFlag> rows = {
      {{}, "", "Training, with accelerate's names: checked here and passed to the ranks", {}},
      {{"--config_file"},
       "FILE",
       "accelerate's YAML or JSON (default: its default file, if it exists; none: no file)",
       [](C&, V& v, S, S s) { v.training.config_file = s.empty() ? "none" : s; }},
      key_flag("mixed_precision", "", "mixed_precision", false, "no, bf16, fp16 or fp8"),
      {{"--cpu", "--use_cpu"}, "", "on the CPU", [](C&, V& v, S, S) { v.training.cpu = true; }},
      kind_flag("multi_gpu", "MULTI_GPU", "data-parallel on GPUs"),
      kind_flag("tpu", "XLA", "on TPUs or another device with a PJRT plug-in: --device xla"),
      kind_flag("use_fsdp", "FSDP", "fully sharded; its settings are --fsdp_..., as in fsdp_config"),
      {{"--fsdp"},
       "WORDS",
       "the same in words: \"full shard\", \"shard_grad_op offload auto_wrap\"",
       [](C&, V& v, S, S s) { v.training.fsdp = s.empty() ? "false" : s; }},
      {{"--fsdp_config"},
       "FILE",
       "its settings as Hugging Face's JSON or YAML",
       [](C&, V& v, S, S s) { v.training.fsdp_config = s; }},
      kind_flag("use_deepspeed", "DEEPSPEED", "ZeRO; its settings are --zero_stage and the others of deepspeed_config"),
      {{"--deepspeed", "--deepspeed_config", "--deepspeed_config_file"},
       "FILE",
       "DeepSpeed's JSON",
       [](C&, V& v, S n, S s) {
         v.training.keys.push_back({"deepspeed_config", "deepspeed_config_file", s, n});
         v.training.kinds.emplace_back("DEEPSPEED", n);
       }},
      kind_flag("use_megatron_lm", "MEGATRON_LM", "settings are --megatron_lm_..."),
      // Accepted, not shown.
      {{"--use_parallelism_config"}, "", "", [](C&, V&, S, S) {}},  // implied by the sizes of the parallelism
                                                                    // configuration
      key_flag("debug", "", "debug", true),
      key_flag("gpu_ids", "", "gpu_ids", false, "", "LIST"),
      key_flag("main_training_function", "", "main_training_function"),
      key_flag("downcast_bf16", "", "downcast_bf16", true),
      key_flag("tpu_use_sudo", "", "tpu_use_sudo", true),
  };
  for (const config::KeyRow& row : config::fsdp_keys())
    rows.push_back(key_flag(concat("fsdp_", row.key), "fsdp_config", concat("fsdp_", row.key)));
  static constexpr std::array<std::string_view, 4> elsewhere = {
      "deepspeed_config_file", "deepspeed_hostfile", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter"};
  for (const config::KeyRow& row : config::accelerate_keys()) {
    const std::size_t dot = row.key.find('.');
    if (dot == std::string_view::npos) continue;
    const std::string section(row.key.substr(0, dot)), key(row.key.substr(dot + 1));
    if (std::find(elsewhere.begin(), elsewhere.end(), key) != elsewhere.end()) continue;
    const bool known = std::any_of(rows.begin(), rows.end(), [&](const LaunchFlag& flag) {
      return std::find(flag.names.begin(), flag.names.end(), "--" + key) != flag.names.end();
    });
    if (!known) rows.push_back(key_flag(key, section, key, is_switch(key)));
  }
  return rows;
}

void take_training(FlagValues& given, LaunchCommand& command) {
  Merged merged(given, command);
  try {
    merged.take();
  } catch (const InputError& error) {
    if (merged.default_file().empty()) throw;
    throw InputError(concat(error.what(), "\n  (", merged.default_file(),
                            " is accelerate's default file, read when --config_file is not given; "
                            "--config_file none ignores it)"));
  }
}

}  // namespace tessera::launch
