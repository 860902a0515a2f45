#include <tessera/config/convert/convert_accelerate.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert_writers.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/core/translation.h>

#include <algorithm>
#include <cstdlib>

namespace tessera::config {
namespace {

std::string_view without_prefix(std::string_view name) { return name.starts_with("fsdp_") ? name.substr(5) : name; }

const Value& object_of(const Value& file) {
  if (!file.is_object())
    throw InputError(concat(file.where().str(), ": expected keys such as distributed_type and fsdp_config"));
  return file;
}

/// Converts fsdp_config version 1, key by key.
class Fsdp2 {
 public:
  Fsdp2(const Value& file, std::vector<std::string>& notes) : file_(file), notes_(notes) {}

  Value run() {
    const Value* section = file_.find("fsdp_config");
    if (section == nullptr || section->is_null() || (section->is_object() && section->members().empty())) {
      notes_.push_back("the file has no fsdp_config: nothing to convert");
      return file_;
    }
    if (!section->is_object())
      throw InputError(concat(section->where().str(), ": fsdp_config must contain keys such as fsdp_version"));
    for (const auto& [key, value] : section->members())
      if (without_prefix(key) == "version" && as_text(value, true) == "2") {
        notes_.push_back(concat(file_and_line(value.where()), ": ", key, " is already 2: nothing to convert"));
        return file_;
      }
    for (const auto& [key, value] : section->members()) convert(key, value);
    out_.set("fsdp_version", Value::of(2));
    Value file = file_;
    file.set("fsdp_config", sorted(out_));
    if (hybrid_) keep_copies(file);
    return sorted(file);
  }

 private:
  template <class... Parts>
  void note(const Value& value, const Parts&... parts) {
    notes_.push_back(concat(file_and_line(value.where()), ": ", parts...));
  }

  void convert(const std::string& key, const Value& value) {
    const std::string_view bare = without_prefix(key);
    if (bare == "version") return;
    if (bare == "sharding_strategy" || bare == "reshard_after_forward") return strategy(key, value);
    static constexpr std::string_view gone[] = {"backward_prefetch", "backward_prefetch_policy", "sync_module_states",
                                                "use_orig_params"};
    if (std::find(std::begin(gone), std::end(gone), bare) != std::end(gone))
      return note(value, key, " is dropped: version 2 has no such key");
    if (bare == "forward_prefetch") return note(value, key, " is dropped: version 2 does not support it yet");
    if (bare == "state_dict_type" && to_lower(as_text(value, true).value_or("")) == "local_state_dict") {
      note(value, key, " LOCAL_STATE_DICT becomes SHARDED_STATE_DICT: version 2 refuses the former");
      return out_.set("fsdp_state_dict_type", Value::of("SHARDED_STATE_DICT"));
    }
    if (bare == "min_num_params") {  // YAML 1.1 readers parse 1e8 as text
      const auto whole = parse_int(as_text(value, true).value_or(""));
      return out_.set("fsdp_min_num_params", whole ? Value::of(*whole) : value);
    }
    out_.set(concat("fsdp_", bare), value);
  }

  void strategy(const std::string& key, const Value& value) {
    if (value.kind() == Value::Kind::boolean) return reshard(value, key, value.as_bool());
    const std::string text = as_text(value, true).value_or("");
    RunConfig scratch;
    if (const auto wrong = find_field("strategy")->set(scratch, text);
        wrong || word_of(scratch.sharding.strategy).starts_with("zero"))
      throw InputError(concat(
          value.where().str(), ": ", key, " is '", text,
          "'; it must be one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2, or 1 to 5"));
    const StrategyRow& row = row_of(scratch.sharding.strategy);
    if (!row.shard_parameters)
      note(value, key, " ", text,
           " becomes fsdp_reshard_after_forward: false, since version 2 always shards parameters");
    if (row.shard_group == ShardGroup::host) hybrid_ = &value;
    reshard(value, key, row.reshard_after_forward);
  }

  void reshard(const Value& value, const std::string& key, bool after_forward) {
    const Value* before = out_.find("fsdp_reshard_after_forward");
    if (before != nullptr && before->as_bool() != after_forward)
      throw InputError(
          concat(value.where().str(), ": ", key, " contradicts the strategy given earlier; keep one of them"));
    out_.set("fsdp_reshard_after_forward", Value::of(after_forward));
  }

  /// Version 1 shards within a machine and replicates across machines; version 2 expresses that as sizes of the mesh.
  void keep_copies(Value& file) {
    const auto number = [&](const char* key, std::int64_t fallback) {
      const Value* value = file_.find(key);
      return value == nullptr ? fallback : parse_int(as_text(*value, true).value_or("")).value_or(fallback);
    };
    if (const Value* given = file_.find("parallelism_config");
        given != nullptr && given->is_object() && !given->members().empty())
      return note(*hybrid_, "the hybrid strategy's replicas are defined by the file's parallelism_config");
    const std::int64_t machines = number("num_machines", 1), processes = number("num_processes", -1);
    if (machines <= 1)
      return note(*hybrid_,
                  "the hybrid strategy shards within a machine; with one machine that is full sharding, which needs no "
                  "parallelism_config");
    if (processes < 1 || processes % machines != 0)
      throw InputError(concat(hybrid_->where().str(),
                              ": the hybrid strategy's replicas become parallelism_config, whose sizes are derived "
                              "from num_processes / num_machines (",
                              machines, "); num_processes is ",
                              processes < 1 ? std::string("missing") : std::to_string(processes)));
    file.set("parallelism_config",
             Value::make_object({{"parallelism_config_dp_replicate_size", Value::of(machines)},
                                 {"parallelism_config_dp_shard_size", Value::of(processes / machines)}}));
    note(*hybrid_, "the hybrid strategy's replicas are kept as parallelism_config: ", machines,
         " replicas, each sharded over ", processes / machines, " processes");
  }

  const Value& file_;
  std::vector<std::string>& notes_;
  Value out_ = Value::make_object();
  const Value* hybrid_ = nullptr;
};

}  // namespace

std::string default_accelerate_path(const GetEnvironment& environment) {
  const auto variable = [&](const char* name) { return look_up(environment, name).value_or(""); };
  std::string home = variable("HF_HOME");
  if (home.empty()) {
    std::string cache = variable("XDG_CACHE_HOME");
    if (cache.empty()) {
      const std::string user = variable("HOME");
      if (user.empty())
        throw InputError(
            "no folder for accelerate's default file: HF_HOME, XDG_CACHE_HOME and HOME are not set; use --config_file");
      cache = path_join(user, ".cache");
    }
    home = path_join(cache, "huggingface");
  }
  if (home.starts_with("~/")) home = path_join(variable("HOME"), home.substr(2));
  return path_join(path_join(home, "accelerate"), "default_config.yaml");
}

Value new_accelerate_file(const std::string& mixed_precision, int gpus) {
  const std::string word = to_lower(mixed_precision);
  if (word != "no" && word != "fp16" && word != "bf16" && word != "fp8")
    throw InputError(concat("--mixed_precision is '", mixed_precision, "'; it must be one of no, fp16, bf16, fp8"));
  return sorted(Value::make_object({{"compute_environment", Value::of("LOCAL_MACHINE")},
                                    {"debug", Value::of(false)},
                                    {"distributed_type", Value::of(gpus > 1 ? "MULTI_GPU" : "NO")},
                                    {"enable_cpu_affinity", Value::of(false)},
                                    {"machine_rank", Value::of(0)},
                                    {"main_training_function", Value::of("main")},
                                    {"mixed_precision", Value::of(word)},
                                    {"num_machines", Value::of(1)},
                                    {"num_processes", Value::of(std::max(gpus, 1))},
                                    {"rdzv_backend", Value::of("static")},
                                    {"same_network", Value::of(false)},
                                    {"use_cpu", Value::of(gpus == 0)}}));
}

Value update_accelerate_file(const Value& file, std::vector<std::string>& notes) {
  object_of(file);
  if (file.find("distributed_type") == nullptr)
    throw InputError(concat(file.where().file ? *file.where().file : "the file",
                            ": distributed_type is missing (NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED, MEGATRON_LM)"));
  Value out = Value::make_object();
  for (const auto& [key, value] : file.members()) {
    if (value.is_null()) continue;
    if (key == "fp16" || key == "dynamo_backend") continue;
    const bool section = key.ends_with("_config");
    if (section && value.is_object() && value.members().empty()) continue;
    // "no" is a word for YAML 1.2 and JSON readers, a boolean for YAML 1.1
    if (key == "mixed_precision" && means_no(value))
      out.set(key, Value::of("no"));
    else if (key == "distributed_type" && means_no(value))
      out.set(key, Value::of("NO"));
    else
      out.set(key, section && value.is_object() ? sorted(value) : value);
  }
  if (const Value* old = file.find("fp16"); old != nullptr && file.find("mixed_precision") == nullptr) {
    const bool on = parse_bool(as_text(*old, false).value_or("")) == true;
    out.set("mixed_precision", Value::of(on ? "fp16" : "no"));
    notes.push_back(concat(file_and_line(old->where()), ": fp16 is replaced by mixed_precision: ", on ? "fp16" : "no"));
  }
  if (const Value* old = file.find("dynamo_backend"); old != nullptr) {
    if (!means_no(*old)) out.set("dynamo_config", Value::make_object({{"dynamo_backend", *old}}));
    notes.push_back(concat(file_and_line(old->where()), ": dynamo_backend is moved to dynamo_config"));
  }
  const std::pair<const char*, Value> defaults[] = {{"compute_environment", Value::of("LOCAL_MACHINE")},
                                                    {"debug", Value::of(false)},
                                                    {"enable_cpu_affinity", Value::of(false)},
                                                    {"machine_rank", Value::of(0)},
                                                    {"main_training_function", Value::of("main")},
                                                    {"num_machines", Value::of(1)},
                                                    {"rdzv_backend", Value::of("static")},
                                                    {"same_network", Value::of(false)},
                                                    {"use_cpu", Value::of(false)}};
  for (const auto& [key, value] : defaults)
    if (out.find(key) == nullptr) {
      out.set(key, value);
      notes.push_back(concat(key, ": ", *as_text(value, false), " is added, accelerate's default"));
    }
  if (out.find("num_processes") == nullptr) {
    const bool single = as_text(out.at("distributed_type"), false) == "NO";
    out.set("num_processes", Value::of(single ? 1 : -1));
    notes.push_back(single ? "num_processes: 1 is added, accelerate's default"
                           : "num_processes: -1 is added: set it when launching (--num_processes)");
  }
  return sorted(out);
}

Value to_fsdp2(const Value& file, std::vector<std::string>& notes) { return Fsdp2(object_of(file), notes).run(); }

}  // namespace tessera::config
