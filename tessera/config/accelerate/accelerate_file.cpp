#include <tessera/config/accelerate/accelerate_file.h>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/yaml.h>
#include <tessera/config/accelerate/accelerate_sections.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/fsdp_config.h>
#include <tessera/config/hf/xla_fsdp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

namespace tessera::config {
namespace {

constexpr std::uint64_t largest_file = 256 << 10;  // real files have about 1 KB
constexpr std::size_t most_problems = 50;          // the file may be something else, or hostile

enum class Kind { data_parallel, fsdp, deepspeed, megatron, unknown };

constexpr std::array<std::string_view, 7> sections = {"fsdp_config",        "deepspeed_config", "megatron_lm_config",
                                                      "parallelism_config", "fp8_config",       "dynamo_config",
                                                      "mpirun_config"};

bool is_section(std::string_view key) { return std::find(sections.begin(), sections.end(), key) != sections.end(); }

/// Whether the value of a given key requests nothing: false, "no", "none", "", [], {} and null.
bool asks_for_nothing(const Value& value) {
  if (means_nothing(value) || means_no(value)) return true;
  return (value.is_array() && value.items().empty()) || (value.is_object() && value.members().empty());
}

class Reader {
 public:
  Reader(const Value& file, Problems& problems)
      : file_(file),
        problems_(problems),
        to_(problems),
        before_(problems.lines.size()),
        s_{file, to_, problems, notes_} {}

  Translation read() {
    if (!file_.is_object()) {
      to_.problem(file_.where(), "expected keys such as distributed_type: this is not an accelerate file");
    } else if (compute_environment()) {
      check_keys();
      translate();
    }
    Translation out = to_.take();
    out.notes.insert(out.notes.end(), notes_.begin(), notes_.end());
    return out;
  }

 private:
  const Value* find(std::string_view key) const { return find_accelerate(file_, "", key); }
  bool too_many() const { return problems_.lines.size() >= before_ + most_problems; }

  /// SageMaker's file has a different schema, so one message is enough.
  bool compute_environment() {
    const auto word = s_.word("", "compute_environment");
    if (!word || *word == "local_machine") return true;
    const Value& value = *find("compute_environment");
    to_.problem(value.where(), *word == "amazon_sagemaker"
                                   ? "compute_environment AMAZON_SAGEMAKER is not supported: Tessera starts jobs on "
                                     "machines that you can reach; write a file with compute_environment: LOCAL_MACHINE"
                                   : concat("compute_environment must be LOCAL_MACHINE, not '",
                                            value.is_string() ? value.as_string() : *word, "'"));
    return false;
  }

  void check_keys() {
    Value xla = Value::make_object();  // FSDP's guide puts these keys next to fsdp_config
    for (const auto& [key, value] : file_.members()) {
      if (too_many())
        return to_.problem(value.where(),
                           concat("these are ", most_problems, " problems; the rest of the file was not read"));
      const KeyRow* row = Translator::find(accelerate_keys(), "", key);
      if (row == nullptr && key.starts_with("xla")) {
        xla.set(key, value);
      } else if (row == nullptr) {
        unknown(key, value, "");
      } else if (value.is_null()) {
        continue;
      } else if (row->effect == Effect::refused) {
        to_.problem(value.where(), concat(key, ": ", row->why));
      } else if (is_section(key)) {
        check_section(key, value);
      } else if (row->effect == Effect::ignored && !is_usual(key, value)) {
        to_.ignored(value, key, row->why);
      }
    }
    Translation beside = read_fsdp_section(xla, problems_);
    for (std::string& note : beside.notes) notes_.push_back(std::move(note));
    for (const FileSetting& setting : beside.settings) to_.give(setting.name, setting.key, setting.text, setting.where);
  }

  /// Whether the questionnaire always writes this key with this value, so that no warning is needed.
  bool is_usual(const std::string& key, const Value& value) const {
    if (asks_for_nothing(value) || key == "same_network") return true;
    if (!value.is_string()) return false;
    return (key == "main_training_function" && value.as_string() == "main") ||
           (key == "rdzv_backend" && (value.as_string() == "static" || value.as_string() == "c10d"));
  }

  void check_section(const std::string& section, const Value& value) {
    if (!value.is_object()) {
      if (!asks_for_nothing(value))
        to_.problem(value.where(), concat(section, " must contain keys and values, such as ", first_key(section)));
      bad_sections_.insert(section);
      return;
    }
    std::map<std::string_view, const Value::Member*> seen;
    for (const Value::Member& member : value.members()) {
      if (too_many()) return;
      const KeyRow* row = find_row(section, member.first);
      if (row == nullptr) {
        if (section != "fsdp_config")
          unknown(member.first, member.second, section);  // fsdp_config's own reader reports it
        continue;
      }
      const auto [before, first] = seen.emplace(row->key, &member);
      if (!first && dump_json(before->second->second) != dump_json(member.second))
        to_.problem(member.second.where(),
                    concat(member.first, " contradicts ", before->second->first, " on line ",
                           before->second->second.where().line, ", which is the same key: keep one of them"));
    }
  }

  static std::string first_key(const std::string& section) {
    if (section == "fsdp_config") return "fsdp_sharding_strategy";
    for (const KeyRow& row : accelerate_keys())
      if (row.key.starts_with(section + ".")) return std::string(row.key.substr(section.size() + 1));
    return "";
  }

  static const KeyRow* find_row(const std::string& section, const std::string& key) {
    const std::string_view prefix = accelerate_prefix(section);
    const KeyRow* row = Translator::find(accelerate_keys(), section, key);
    return row != nullptr || key.starts_with(prefix)
               ? row
               : Translator::find(accelerate_keys(), section, concat(prefix, key));
  }

  void unknown(const std::string& key, const Value& value, const std::string& section) {
    if (!section.empty() && key.starts_with('_')) return to_.ignored(value, section + "." + key, "it is a comment");
    std::vector<std::string> names;
    const std::string_view prefix = accelerate_prefix(section);
    const bool bare = !section.empty() && !key.starts_with(prefix);
    for (const KeyRow& row : accelerate_keys()) {
      std::string_view name = row.key;
      if (!section.empty() && !name.starts_with(section + ".")) continue;
      if (section.empty() ? name.find('.') != std::string_view::npos || row.effect == Effect::refused : false) continue;
      if (!section.empty()) name.remove_prefix(section.size() + 1);
      names.emplace_back(bare && name.starts_with(prefix) ? name.substr(prefix.size()) : name);
    }
    const bool count = key == "num_procs" || key == "num_gpus" || key == "world_size" || key == "nproc_per_node";
    const auto near = section.empty() && count ? std::optional<std::string>("num_processes") : nearest(key, names);
    std::string advice = near ? concat("; did you mean ", *near, "?") : concat("; the keys are ", join(names));
    if (!near)  // a section's key outside of its section
      for (const std::string_view other : sections)
        if (const KeyRow* row = find_row(std::string(other), key); row != nullptr && section.empty())
          advice = other == "deepspeed_config" && !is_of_deepspeed() && !row->setting.empty()
                       ? concat("; it is a key of deepspeed_config, only for distributed_type DEEPSPEED: pass --",
                                row->setting, " to the training")
                       : concat("; it belongs in ", other);
    if (section.empty() && key.starts_with("fsdp_")) advice = "; it belongs in fsdp_config";
    const std::string said = concat("unknown key ", section.empty() ? "" : section + ".", key);
    if (section.empty() || problems_.unknown == UnknownWords::refuse) return to_.problem(value.where(), said + advice);
    to_.note(value.where(), concat(said, ", which accelerate ignores, has no effect", near ? advice : ""));
  }

  bool is_of_deepspeed() const {
    const Value* type = find("distributed_type");
    return type != nullptr && to_lower(as_text(*type, true).value_or("")) == "deepspeed";
  }

  Kind kind() {
    const Value* value = find("distributed_type");
    if (value == nullptr) {
      to_.problem(file_.where(),
                  "distributed_type is missing: one of NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED, MEGATRON_LM, XLA",
                  {"strategy"});
      return Kind::unknown;
    }
    if (means_no(*value)) return Kind::data_parallel;  // the word NO, which YAML 1.1 parses as false
    const std::string word = to_lower(as_text(*value, true).value_or("?"));
    if (word == "multi_cpu" || word == "multi_gpu" || word == "xla" || word == "tpu") return Kind::data_parallel;
    if (word == "fsdp") return Kind::fsdp;
    if (word == "deepspeed") return Kind::deepspeed;
    if (word == "megatron_lm") return Kind::megatron;
    const std::string shown = as_text(*value, true).value_or("");
    const std::vector<std::string> words = {"NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA"};
    std::string upper = word;
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    std::string what = concat("distributed_type must be one of ", join(words), ", not '", shown, "'");
    if (word == "tp") {
      what = "distributed_type TP: write MULTI_GPU, and parallelism_config with tp_size";
    } else if (const std::vector<std::string> foreign = {"multi_npu", "multi_mlu", "multi_sdaa", "multi_musa",
                                                         "multi_xpu", "multi_hpu", "multi_neuron"};
               std::find(foreign.begin(), foreign.end(), word) != foreign.end()) {
      what = concat("distributed_type ", shown,
                    " means accelerators that are not supported: Tessera runs on CPUs (MULTI_CPU) and NVIDIA GPUs "
                    "(MULTI_GPU, FSDP)");
    } else if (const auto near = nearest(upper, words)) {
      what += concat(" (did you mean ", *near, "?)");
    }
    to_.problem(value->where(), what, {"strategy"});
    return Kind::unknown;
  }

  void translate() {
    const Kind kind = this->kind();
    const std::int64_t processes = machine(kind);
    precision();
    const AccelerateMesh mesh = bad("parallelism_config") ? AccelerateMesh{} : accelerate_mesh(s_, processes);
    const bool divides = kind == Kind::fsdp || kind == Kind::deepspeed || kind == Kind::unknown;
    if (mesh.shard > 1 && !divides)
      to_.problem(mesh.shard_from->where(),
                  concat("parallelism_config_dp_shard_size ", mesh.shard,
                         " shards the parameters, which requires distributed_type FSDP: use that, or size 1"));
    section(kind == Kind::fsdp, "fsdp_config", [&] { translate_accelerate_fsdp(s_, mesh); });
    section(kind == Kind::deepspeed, "deepspeed_config", [&] { translate_accelerate_deepspeed(s_); });
    section(kind == Kind::megatron, "megatron_lm_config", [&] { translate_accelerate_megatron(s_); });
    for (const KeyRow& row : accelerate_keys())
      if (kind_section(kind) == row.key.substr(0, row.key.find('.')) || row.key.starts_with("parallelism_config.") ||
          (row.key.starts_with("fp8_config.") && s_.word("", "mixed_precision") == "fp8"))
        row_of_section(row);
    section(s_.word("", "mixed_precision") == "fp8", "fp8_config", [&] { translate_accelerate_fp8(s_); });
    for (const char* name : {"dynamo_config", "mpirun_config"}) idle_section(name);
  }

  bool bad(const std::string& section) const { return bad_sections_.contains(section); }
  static std::string_view kind_section(Kind kind) {
    return kind == Kind::deepspeed ? "deepspeed_config" : kind == Kind::megatron ? "megatron_lm_config" : "?";
  }

  /// Only the section of distributed_type acts; the keys of the others are only checked.
  template <class Act>
  void section(bool active, const std::string& name, const Act& act) {
    if (bad(name)) return;
    if (active) return act();
    const Value* value = find(name);
    if (value == nullptr || asks_for_nothing(*value)) return;
    if (name == "fsdp_config") {
      Value known = Value::make_object();
      known.set_where(value->where());
      for (const auto& [key, member] : value->members())
        if (find_row(name, key) == nullptr) known.set(key, member);
      read_fsdp_section(known, problems_);
    }
    if (name == "fp8_config") return to_.ignored(*value, name, "mixed_precision is not fp8");
    const Value* type = find("distributed_type");
    to_.ignored(*value, name,
                concat("distributed_type is ", type == nullptr   ? "missing"
                                               : means_no(*type) ? "NO"
                                                                 : as_text(*type, true).value_or("?")));
  }

  /// Reports ignored and refused keys; acting keys have been translated.
  void row_of_section(const KeyRow& row) {
    const std::size_t dot = row.key.find('.');
    if (row.effect == Effect::acts || dot == std::string_view::npos) return;
    const std::string_view section = row.key.substr(0, dot), key = row.key.substr(dot + 1);
    if (bad(std::string(section))) return;
    const Value* value = s_.find(section, key);
    if (value == nullptr || asks_for_nothing(*value)) return;
    if (row.effect == Effect::refused) return to_.problem(value->where(), concat(key, ": ", row.why));
    const std::string word = to_lower(as_text(*value, true).value_or(""));
    if (key == "parallelism_config_cp_backend" || key == "parallelism_config_sp_backend" ||
        key == "parallelism_config_sp_seq_length_is_variable" || key == "parallelism_config_sp_attn_implementation")
      return;  // always written by the questionnaire
    if (key == "fp8_interval" && word == "1") return;
    to_.ignored(*value, std::string(key), row.why);
  }

  /// Adds one note for a section that does not apply.
  void idle_section(const std::string& name) {
    const Value* value = find(name);
    if (bad(name) || value == nullptr || asks_for_nothing(*value)) return;
    if (name == "dynamo_config") {
      const auto backend = s_.word(name, "dynamo_backend");
      if (!backend || *backend == "no" || *backend == "false") return;
    }
    to_.ignored(*value, name, Translator::find(accelerate_keys(), "", name)->why);
  }

  void precision() {
    if (const Value* old = find("fp16"); old != nullptr && s_.flag("", "fp16").value_or(false))
      to_.give("fp16", "fp16", std::string("true"), old->where());
    const auto word = s_.word("", "mixed_precision");
    if (!word || *word == "no" || *word == "false") return;
    const Value& value = *find("mixed_precision");
    if (*word == "bf16" || *word == "fp16") {
      if (to_.given("fp16") && *word == "bf16")
        return to_.problem(
            value.where(),
            concat("mixed_precision bf16 contradicts fp16 on line ", find("fp16")->where().line, "; keep one of them"),
            {"bf16", "fp16"});
      return to_.give(*word, "mixed_precision", std::string("true"), value.where());
    }
    if (*word == "fp8") return to_.give("bf16", "mixed_precision", std::string("true"), value.where());
    const auto near = nearest(*word, std::array<std::string, 4>{"no", "fp16", "bf16", "fp8"});
    to_.problem(value.where(),
                concat("mixed_precision must be one of no, fp16, bf16, fp8, not '", *word, "'",
                       near ? concat(" (did you mean ", *near, "?)") : ""),
                {"bf16", "fp16"});
  }

  /// Whether the type comes from a file or from a flag such as --use_fsdp; variables and the launcher's own NO do not
  /// count.
  static bool was_said(const Value& type) {
    return type.where().line > 0 || (type.where().kind == SourcePos::Kind::flag && !means_no(type));
  }

  /// The total number of processes, or 0 if the file does not specify it.
  std::int64_t machine(Kind kind) {
    const AccelerateLaunch launch = accelerate_launch(file_, problems_);
    if (asks_for_xla(file_)) {  // one process drives all devices
      const Value* from = find("xla");
      if (from == nullptr) from = find("distributed_type");
      to_.give("device", "xla", std::string("xla"), from->where());
      if (launch.main_process_port) to_.give("main_process_port", "main_process_port", *find("main_process_port"));
      const Value* const devices = find("num_processes");
      if (devices != nullptr && as_text(*devices, true) != "-1") to_.give("xla_devices", "num_processes", *devices);
      return 0;
    }
    if (s_.flag("", "use_cpu").value_or(false))
      to_.give("device", "use_cpu", std::string("cpu"), find("use_cpu")->where());
    else if (const Value* type = find("distributed_type");
             type != nullptr && was_said(*type) && to_lower(as_text(*type, true).value_or("")) != "multi_cpu")
      to_.give("device", "distributed_type", std::string("auto"), type->where());
    if (launch.main_process_port) to_.give("main_process_port", "main_process_port", *find("main_process_port"));
    const std::int64_t machines = launch.num_machines.value_or(1);
    if (machines > 1)
      to_.note(find("num_machines")->where(), concat("num_machines ", machines,
                                                     " is for the launcher: run tessera launch --config_file on each "
                                                     "machine; otherwise one machine trains alone"));
    if (!launch.num_processes) return 0;
    const Value& value = *find("num_processes");
    const Value* type = find("distributed_type");
    if (kind == Kind::data_parallel && means_no(*type) && *launch.num_processes > 1 && value.where().line > 0) {
      to_.note(value.where(), concat("num_processes ", *launch.num_processes,
                                     " has no effect: distributed_type NO is one process (MULTI_CPU, MULTI_GPU, FSDP "
                                     "are several)"));
      return 1;
    }
    if (machines == 1) {
      to_.give("num_processes", "num_processes", value);
    }
    return *launch.num_processes;
  }

  const Value& file_;
  Problems& problems_;
  Translator to_;
  std::size_t before_;
  std::vector<std::string> notes_;
  AccelerateSections s_;
  std::set<std::string> bad_sections_;
};

}  // namespace

Value load_accelerate_file(const std::string& path, std::vector<std::string>* repeated) {
  if (!path_exists(path)) throw InputError(concat("--config_file ", path, ": no such file; tessera config writes one"));
  if (is_directory(path))
    throw InputError(concat("--config_file ", path, " is a folder; expected accelerate's YAML or JSON file"));
  const std::string text = read_file(path, largest_file);
  Value file = to_lower(path).ends_with(".json") ? parse_json(without_byte_order_mark(text), path)
                                                 : parse_yaml(text, path, repeated);
  if (!file.is_object())
    throw InputError(concat(path, ": expected keys such as distributed_type: this is not an accelerate file"));
  return file;
}

Translation read_accelerate(const Value& file, Problems& problems) { return Reader(file, problems).read(); }

Translation read_accelerate_file(const std::string& path, Problems& problems) {
  try {
    std::vector<std::string> repeated;
    const Value file = load_accelerate_file(path, &repeated);
    Translation translation = read_accelerate(file, problems);
    translation.notes.insert(translation.notes.begin(), repeated.begin(), repeated.end());
    return translation;
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
    return {};
  }
}

AccelerateLaunch accelerate_launch(const Value& file, Problems& problems) {
  AccelerateLaunch launch;
  if (!file.is_object()) return launch;
  Translator to(problems);
  std::vector<std::string> notes;
  const AccelerateSections s{file, to, problems, notes};
  const auto text = [&](std::string_view section, std::string_view key) {
    const Value* value = s.find(section, key);
    if (value == nullptr || means_nothing(*value)) return std::string();
    if (auto words = as_text(*value, true)) return *words;
    if (value->is_array() && key == "gpu_ids") {  // [0, 1]
      std::vector<std::string> ids;
      for (const Value& item : value->items()) ids.push_back(as_text(item, true).value_or("?"));
      return join(ids, ",");
    }
    to.problem(value->where(), concat(key, " must be text"));
    return std::string();
  };
  launch.num_processes = s.whole("", "num_processes", -1, 1 << 20);
  if (launch.num_processes == -1) launch.num_processes.reset();
  if (launch.num_processes > 0 && asks_for_xla(file)) launch.num_processes = 1;  // the process drives all devices
  if (launch.num_processes == 0) {
    to.problem(s.find("", "num_processes")->where(), "num_processes must be at least 1 (-1: not given)",
               {"num_processes"});
    launch.num_processes.reset();
  }
  launch.num_machines = s.whole("", "num_machines", 1, 65'536);
  launch.machine_rank = s.whole("", "machine_rank", 0, 65'535);
  launch.main_process_port = s.whole("", "main_process_port", 0, 65'535);
  launch.main_process_ip = text("", "main_process_ip");
  launch.gpu_ids = text("", "gpu_ids");
  if (launch.gpu_ids == "all") launch.gpu_ids.clear();
  launch.hostfile = text("deepspeed_config", "deepspeed_hostfile");
  launch.inclusion_filter = text("deepspeed_config", "deepspeed_inclusion_filter");
  launch.exclusion_filter = text("deepspeed_config", "deepspeed_exclusion_filter");
  launch.enable_cpu_affinity = s.flag("", "enable_cpu_affinity").value_or(false);
  const std::int64_t machines = launch.num_machines.value_or(1);
  if (launch.num_processes && *launch.num_processes % machines != 0)
    to.problem(s.find("", "num_processes")->where(),
               concat("num_processes ", *launch.num_processes,
                      " is the total over all machines and is not divisible by num_machines ", machines),
               {"num_processes"});
  if (launch.machine_rank && *launch.machine_rank >= machines)
    to.problem(s.find("", "machine_rank")->where(),
               concat("machine_rank ", *launch.machine_rank, " of num_machines ", machines, ": ranks start at 0"));
  return launch;
}

std::optional<std::string> default_accelerate_file(const GetEnvironment& environment) {
  const auto home = [&](std::string path) {
    if (path.starts_with("~")) path = concat(look_up(environment, "HOME").value_or(""), path.substr(1));
    return path;
  };
  const auto set = [&](const char* name) {
    const auto text = look_up(environment, name);
    return text && !text->empty() ? text : std::nullopt;
  };
  std::string cache = home(set("XDG_CACHE_HOME").value_or("~/.cache"));
  const std::string folder = path_join(home(set("HF_HOME").value_or(path_join(cache, "huggingface"))), "accelerate");
  for (const char* name : {"default_config.yaml", "default_config.json"})
    if (const std::string path = path_join(folder, name); path_exists(path) && !is_directory(path)) return path;
  return std::nullopt;
}

}  // namespace tessera::config
