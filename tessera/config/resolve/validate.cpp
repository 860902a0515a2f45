// Rules between settings, and checks of the files that they name.

#include <tessera/architectures/vision.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/object_url.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/config/hf/sharding.h>
#include <tessera/config/model/validate_model.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/config/resolve/validate_mesh.h>
#include <tessera/config/resolve/validate_said.h>
#include <tessera/config/resolve/validate_sharding.h>
#include <tessera/config/resolve/validate_training.h>
#include <tessera/config/rules/lora_modules.h>
#include <tessera/config/rules/output_folder.h>
#include <tessera/corpus/columns.h>
#include <tessera/corpus/data_list.h>
#include <tessera/layout/backends.h>
#include <tessera/text/conversation.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

namespace tessera::config {
namespace {

class Rules : RuleChecks {
 public:
  Rules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    model();
    data();
    parallel();
    output();
  }

 private:
  void model() {
    const ModelConfig& m = c_.model;
    if (m.model_name_or_path.empty() && m.config_name.empty())
      problem({"model_name_or_path", "config_name"},
              "no model: use --model_name_or_path DIR to start from its weights, or --config_name NAME|FILE (gpt2, "
              "gpt2-tiny, llama-tiny, a config.json) to start from scratch");
    if (!m.model_name_or_path.empty() && !m.config_name.empty())
      problem({"model_name_or_path", "config_name"},
              "--model_name_or_path and --config_name exclude each other: the first starts from "
              "weights, the second from scratch");
    if (!m.config_overrides.empty() && !m.model_name_or_path.empty())
      problem({"model_name_or_path", "config_overrides"},
              "--config_overrides needs --config_name: a model with weights cannot change its shape");
    if (m.lora_r > 0 && m.model_name_or_path.empty())
      problem({"lora_r", "model_name_or_path"},
              "--lora_r needs --model_name_or_path: adapters on random weights are useless");
    if (m.config_name.empty())  // otherwise validate_model applies them
      read("config_overrides", [&] { return parse_overrides(m.config_overrides); });
    if (m.lora_r > 0) {
      read("lora_target_modules", [&] { return lora_targets(m); });
      read("lora_modules_to_save", [&] { return lora_modules_to_save(m); });
    }
    model_folder();
    const std::string& name = m.config_name;
    if ((name.find('/') != std::string::npos || name.ends_with(".json")) && !path_exists(name))
      problem({"config_name"}, said("config_name"), " ", name, ": no such file or folder");
    if (is_directory(name) && !path_exists(path_join(name, "config.json")))
      problem({"config_name"}, said("config_name"), " ", name, ": the folder has no config.json");
    if (!m.tokenizer_name.empty() && m.tokenizer_name != "byte" && !path_exists(m.tokenizer_name))
      problem({"tokenizer_name"}, said("tokenizer_name"), " ", m.tokenizer_name,
              ": no such file or folder (nothing is downloaded; 'byte' needs no file)");
  }

  void model_folder() {
    const std::string& folder = c_.model.model_name_or_path;
    if (folder.empty()) return;
    if (!is_directory(folder))
      problem({"model_name_or_path"}, said("model_name_or_path"), " ", folder,
              path_exists(folder) ? " is a file, not a folder" : ": no such folder (nothing is downloaded)");
    else if (!path_exists(path_join(folder, "config.json")) && !path_exists(path_join(folder, "adapter_config.json")))
      problem({"model_name_or_path"}, said("model_name_or_path"), " ", folder,
              ": the folder has neither config.json (a model) nor adapter_config.json (LoRA adapters of one)");
  }

  void data_files(const char* name, const std::string& list) {
    try {
      for (const std::string& place : corpus::places_of(corpus::parse_data_list(list))) data_file(name, place);
    } catch (const InputError& error) {
      problem({name}, said(name), ": ", error.what());
    }
  }

  /// Whether `text` is an object's URL; an invalid one is a problem.
  bool object(const char* name, const std::string& text) {
    if (!is_object_url(text)) return false;
    try {
      parse_object_url(text);
    } catch (const InputError& error) {
      problem({name}, said(name), ": ", error.what());
    }
    return true;
  }

  void data_file(const char* name, const std::string& path) {
    if (object(name, path)) {
      if (c_.data.data_cache_dir == "none")
        problem({name, "data_cache_dir"}, said(name), " ", path,
                ": objects are fetched into --data_cache_dir, but that is none");
      return;
    }
    if (corpus::is_pattern(path)) return;
    if (!path_exists(path)) return problem({name}, said(name), " ", path, ": no such file");
    if (path.ends_with(".bin") && !path_exists(path.substr(0, path.size() - 4) + ".idx"))
      problem({name}, said(name), " ", path, ": its index ", path.substr(0, path.size() - 4), ".idx is missing");
  }

  void data() {
    const DataConfig& d = c_.data;
    if (d.mock_data)
      mock_data();
    else if (d.train_file.empty())
      problem({"train_file"}, "--train_file is missing: set it to a .txt or .jsonl file, or a .bin with its .idx");
    data_files("train_file", d.train_file);
    data_files("validation_file", d.validation_file);
    if (!d.column_map.empty()) read("column_map", [&] { return corpus::parse_column_map(d.column_map); });
    if (d.group_by_length && d.train_sampling_strategy != SamplingStrategy::group_by_length)
      problem({"group_by_length", "train_sampling_strategy"},
              "--group_by_length contradicts --train_sampling_strategy ", d.train_sampling_strategy);
    if (d.group_by_modality_length && d.train_sampling_strategy != SamplingStrategy::group_by_modality_length)
      problem({"group_by_modality_length", "train_sampling_strategy"},
              "--group_by_modality_length contradicts --train_sampling_strategy ", d.train_sampling_strategy);
    conversations();
    vision();
    if (d.streaming) streaming();
  }

  /// Checks the settings of a vision-language model, composed from two folders or complete.
  void vision() {
    const ModelConfig& m = c_.model;
    if (m.tune_mm_mlp_adapter && m.freeze_mm_mlp_adapter)
      problem({"tune_mm_mlp_adapter", "freeze_mm_mlp_adapter"},
              "--tune_mm_mlp_adapter trains only the projector, --freeze_mm_mlp_adapter freezes it: use only one");
    if ((m.freeze_backbone || m.freeze_mm_mlp_adapter || m.tune_mm_mlp_adapter) && m.lora_r > 0)
      problem({"lora_r", "tune_mm_mlp_adapter", "freeze_backbone", "freeze_mm_mlp_adapter"},
              "--lora_r freezes all weights, and trains adapters of the language model and all of --vision_tower's "
              "projector: remove --tune_mm_mlp_adapter, --freeze_backbone and --freeze_mm_mlp_adapter");
    if (m.vision_tower.empty()) return;
    if (m.freeze_backbone && m.freeze_mm_mlp_adapter)
      problem({"freeze_backbone", "freeze_mm_mlp_adapter"},
              "--freeze_backbone with --freeze_mm_mlp_adapter: nothing is left to train; use only one of them");
    read("mm_projector_type", [&] { return architectures::projections_of(m.mm_projector_type); });
    const ParallelConfig& p = c_.parallel;
    for (const auto& [name, size] : {std::pair{"pp_size", p.pp_size}, {"tp_size", p.tp_size}, {"cp_size", p.cp_size}})
      if (size > 1)
        problem({"vision_tower", name}, said("vision_tower"), ": a vision-language model cannot be cut: use --", name,
                " 1; --strategy full_shard can shard it");
  }

  /// Images and LLaVA's templates.
  void conversations() {
    const DataConfig& d = c_.data;
    if (!d.image_folder.empty() && !is_directory(d.image_folder))
      problem({"image_folder"}, said("image_folder"), " ", d.image_folder, ": no such folder");
    if (d.version.empty()) return;
    read("version", [&] { return &text::conversation_of(d.version); });
    if (!d.chat_template.empty())
      problem({"version", "chat_template"}, said("version"), " ", d.version, " is for records with `conversations`, ",
              said("chat_template"), " for those with `messages`: use only one of them");
    if (d.streaming)
      problem({"version", "streaming"}, said("version"),
              ": records with `conversations` are read before the first step; ", "remove ", said("streaming"));
    if (c_.optimization.preference_loss != PreferenceLoss::none)
      problem({"version", "preference_loss"}, said("version"),
              " is for records with `conversations`, not for pairs of answers: remove it");
  }

  /// `--mock_data` excludes data files.
  void mock_data() {
    const DataConfig& d = c_.data;
    for (const auto& [name, list] :
         {std::pair{"train_file", d.train_file}, std::pair{"validation_file", d.validation_file}})
      if (!list.empty())
        problem({"mock_data", name}, said("mock_data"), " generates the data, but ", said(name), " names ", list,
                ": use only one of them");
    if (d.streaming)
      problem({"mock_data", "streaming"}, said("mock_data"),
              " generates its rows when they are read, so there is nothing to tokenize ahead: remove ",
              said("streaming"));
  }

  /// Settings that need the number of rows, which a stream does not have.
  void streaming() {
    const DataConfig& d = c_.data;
    const OutputConfig& o = c_.output;
    if (c_.optimization.max_steps <= 0)
      problem({"streaming", "max_steps"}, said("streaming"),
              " needs --max_steps: the number of rows of a stream is unknown (as for transformers' IterableDataset)");
    if (d.train_sampling_strategy == SamplingStrategy::group_by_length ||
        d.train_sampling_strategy == SamplingStrategy::group_by_modality_length)
      problem({"streaming", "train_sampling_strategy"}, said("train_sampling_strategy"), " ", d.train_sampling_strategy,
              " sorts all rows by length, which --streaming does not know");
    if (d.blend_mode == BlendMode::first_exhausted)
      problem({"streaming", "blend_mode"}, said("blend_mode"),
              " first_exhausted ends an epoch before any row repeats, which --streaming cannot detect");
    if (d.dataloader_drop_last)
      problem({"streaming", "dataloader_drop_last"}, said("dataloader_drop_last"),
              " drops the end of each epoch, which --streaming does not know");
    if (d.max_train_samples > 0)
      problem({"streaming", "max_train_samples"}, said("max_train_samples"),
              " counts rows, but --streaming does not know their number: remove it; --max_steps ends the run");
    if (o.ignore_data_skip)
      problem({"streaming", "ignore_data_skip"}, said("ignore_data_skip"),
              " restarts an epoch, but --streaming has none and skips nothing anyway; remove it");
    for (const auto& [name, by_epoch] : {std::pair{"logging_strategy", o.logging_strategy == Interval::epoch},
                                         std::pair{"eval_strategy", o.eval_strategy == Interval::epoch},
                                         std::pair{"save_strategy", o.save_strategy == SaveStrategy::epoch}})
      if (by_epoch)
        problem({"streaming", name}, said(name), " epoch: --streaming does not know where an epoch ends; use steps");
    const bool evaluates = o.eval_strategy != Interval::no || o.do_eval;
    if (evaluates && d.validation_file.empty() && d.validation_split_percentage > 0)
      problem({"streaming", "validation_file"}, said("streaming"),
              ": no evaluation data can be split off a stream; use --validation_file");
    if (corpus::holds_tokens_only(d.train_file))
      problem({"streaming", "train_file"}, said("train_file"), " ", d.train_file,
              ": already contains tokens, which are read from the file on demand; remove --streaming");
  }

  void parallel() {
    const ParallelConfig& p = c_.parallel;
    const layout::BackendRow* row = layout::find_backend(p.backend);
    if (row == nullptr) return;  // auto
    if (row->reach == layout::BackendRow::Reach::one_rank && p.num_processes > 1)
      problem({"backend", "num_processes"}, "--backend ", row->name, " is for one process; --num_processes is ",
              p.num_processes, " (use ", layout::usual_backend(c_.device), ")");
    if (row->device != Device::automatic && c_.device != Device::automatic && row->device != c_.device)
      problem({"backend", "device"}, "--backend ", row->name, " moves ", layout::device_text(row->device),
              " tensors but --device is ", c_.device, ": use ", layout::usual_backend(c_.device), " or auto");
  }

  void output() {
    const OutputConfig& o = c_.output;
    resume();
    const std::string& metrics = o.metrics_file;
    const std::size_t slash = metrics.find_last_of('/');
    if (is_directory(metrics) || (slash != std::string::npos && slash > 0 && !is_directory(metrics.substr(0, slash))))
      problem({"metrics_file"}, said("metrics_file"), " ", metrics,
              is_directory(metrics) ? " is a folder, not a file" : ": no such folder");
    const std::string& folder = o.output_dir;
    if (folder.empty())
      return problem({"output_dir"}, "--output_dir is missing: set it to a folder for model, metrics and report");
    if (!path_exists(folder)) return creatable(folder);
    if (!is_directory(folder))
      return problem({"output_dir"}, said("output_dir"), " ", folder, " is a file, not a folder");
    if (o.overwrite_output_dir || !o.resume_from_checkpoint.empty()) return;
    if (const std::string why = why_not_empty(folder); !why.empty())
      problem({"output_dir", "overwrite_output_dir", "resume_from_checkpoint"}, said("output_dir"), " ", folder, " ",
              why);
  }

  /// Checks that the nearest existing parent is a folder in which this user may create a folder.
  void creatable(const std::string& folder) {
    std::filesystem::path above = absolute_path(folder);
    while (above.has_relative_path() && !path_exists(above.string())) above = above.parent_path();
    if (!is_directory(above.string()))
      problem({"output_dir"}, said("output_dir"), " ", folder, " cannot be created: '", above.filename().string(),
              "' is a file, not a folder");
    else if (::access(above.c_str(), W_OK) != 0)
      problem({"output_dir"}, said("output_dir"), " ", folder, " cannot be created: no permission to write in ",
              above.string());
  }

  /// A job that is restarted with the same command starts from scratch in an unfinished run's folder, but never in that
  /// of a finished model.
  void automatic(const std::string& folder) {
    if (folder.empty() || !is_directory(folder) || c_.output.overwrite_output_dir) return;
    const std::vector<std::string> names = list_folder(folder);
    const bool resumable = std::any_of(names.begin(), names.end(),
                                       [](const std::string& name) { return name.starts_with("checkpoint-"); });
    if (!resumable && path_exists(path_join(folder, "config.json")))
      problem({"resume_from_checkpoint", "output_dir"}, "--resume_from_checkpoint auto: ", folder,
              " contains a finished model but no checkpoint to resume from; choose another folder, or replace it with "
              "--overwrite_output_dir");
  }

  void resume() {
    const std::string& from = c_.output.resume_from_checkpoint;
    const std::string& folder = c_.output.output_dir;
    if (from.empty()) return;
    if (from == "auto") return automatic(folder);
    if (from != "last") {
      if (object("resume_from_checkpoint", from)) return;
      if (!is_directory(from))
        problem({"resume_from_checkpoint"}, said("resume_from_checkpoint"), " ", from,
                ": no such folder (or use 'last')");
      return;
    }
    if (folder.empty()) return;  // reported separately
    const auto names = is_directory(folder) ? list_folder(folder) : std::vector<std::string>();
    if (std::none_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with("checkpoint-"); }))
      problem({"resume_from_checkpoint", "output_dir"}, "--resume_from_checkpoint last: ", folder,
              " has no complete checkpoint-N folder; remove the flag to start from scratch");
  }
};

}  // namespace

void validate(const Resolved& resolved, Problems& problems) {
  Rules(resolved, problems).check();
  validate_training(resolved, problems);
  validate_sharding(resolved, problems);
  validate_mesh(resolved, problems);
  validate_model(resolved, problems);
}

void validate(const Resolved& resolved) {
  Problems problems;
  validate(resolved, problems);
  throw_if_any(problems);
}

void validate_said(const Resolved& resolved, Problems& problems) {
  const std::set<std::string> doubtful = problems.doubtful;
  for (const char* name : {"model_name_or_path", "config_name", "train_file", "output_dir"})
    if (resolved.is_default(name)) problems.doubtful.insert(name);
  validate(resolved, problems);
  problems.doubtful = doubtful;
}

namespace {

void unused_sharding(const Resolved& resolved, const Unused& unused) {
  const OptimizationConfig& o = resolved.values.optimization;
  const ShardingConfig& s = resolved.values.sharding;
  if (!o.gradient_checkpointing) unused("gradient_checkpointing_kwargs", "--gradient_checkpointing is not given");
  if (!s.auto_strategy)
    for (const char* name : {"auto_min_batch_size", "auto_max_batch_size"}) unused(name, "--strategy is not auto");
  if (s.cpu_offload == Offload::none) unused("offload_folder", "--cpu_offload is none");
  const StrategyRow& strategy = row_of(s.strategy);
  if (strategy.shard_group == ShardGroup::none)
    for (const char* name : {"shard_group_size", "forward_prefetch", "limit_all_gathers"})
      unused(name, concat("the strategy ", s.strategy, " shards nothing"));
  if (!strategy.shard_parameters)
    for (const char* name : {"auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "wrap_pattern",
                             "backward_prefetch", "reshard_after_forward", "persistence_threshold"})
      unused(name, concat("the strategy ", s.strategy, " keeps parameters whole"));
  else if (!decided(s.reshard_after_forward).value_or(strategy.reshard_after_forward))
    unused("backward_prefetch", "parameters stay whole after forward: backward gathers nothing");
  if (s.auto_wrap_policy != AutoWrap::transformer_based)
    unused("transformer_layer_cls_to_wrap", concat("--auto_wrap_policy is ", s.auto_wrap_policy));
  // with classes from a file, resolve_sharding() has reported it
  const bool said = s.auto_wrap_policy == AutoWrap::transformer_based && s.min_num_params > 0 &&
                    !s.transformer_layer_cls_to_wrap.empty() && !resolved.origin("min_num_params").is_flag();
  if (s.auto_wrap_policy != AutoWrap::size_based && !said)
    unused("min_num_params", concat("--auto_wrap_policy is ", s.auto_wrap_policy));
  if (s.auto_wrap_policy != AutoWrap::regex)
    unused("wrap_pattern", concat("--auto_wrap_policy is ", s.auto_wrap_policy));
  if (row_of(s.strategy).shard_parameters)
    for (const char* name : {"reduce_bucket_size", "ddp_bucket_cap_mb"})
      unused(name, concat("the strategy ", s.strategy, " reduces wrapped modules together"));
}

/// Collects lines about settings without effect. For files, which often contain defaults, only settings that differ
/// from their defaults are reported, those with the same reason in one line.
class UnusedLines {
 public:
  explicit UnusedLines(const Resolved& resolved) : resolved_(resolved), lines_(resolved.notes) {}

  void add(const char* name, const std::string& why) {
    const Origin& origin = resolved_.origin(name);
    if (origin.is_flag() || origin.kind == Origin::Kind::environment)
      return note(concat(origin, " has no effect: ", why));
    if (origin.kind != Origin::Kind::file || origin.line == 0 || is_default_value(name)) return;
    const std::string place = concat(name, " (line ", origin.line, ")");
    for (Group& group : groups_)
      if (group.file == origin.file && group.why == why) return group.places.push_back(place);
    groups_.push_back({origin.file, why, {place}});
  }
  void note(const std::string& line) { lines_.push_back(line); }

  std::vector<std::string> take() {
    for (const Group& group : groups_)
      lines_.push_back(concat(group.file, ": ", join(group.places), group.places.size() == 1 ? " has" : " have",
                              " no effect: ", group.why));
    return std::move(lines_);
  }

 private:
  struct Group {
    std::string file, why;
    std::vector<std::string> places;
  };

  bool is_default_value(const char* name) const {
    static const RunConfig defaults;
    const Field* field = find_field(name);
    return dump_json(field->get(resolved_.values)) == dump_json(field->get(defaults));
  }

  const Resolved& resolved_;
  std::vector<std::string> lines_;
  std::vector<Group> groups_;
};

}  // namespace

std::string unused_gpu(const Resolved& resolved, bool has_gpu) {
  if (!has_gpu || resolved.values.device != Device::cpu || resolved.origin("device").is_given()) return "";
  return "this machine has a GPU, but the run uses the CPU: use --device auto for the GPU, or --device cpu to confirm "
         "the CPU";
}

std::vector<std::string> unused_settings(const Resolved& resolved) {
  const RunConfig& c = resolved.values;
  UnusedLines lines(resolved);
  const Unused unused = [&](const char* name, const std::string& why) { lines.add(name, why); };
  using Kind = OptimizerKind;
  const Kind optim = c.optimization.optim;
  const bool adam = optim == Kind::adamw || optim == Kind::adam || optim == Kind::adamw_8bit;
  if (optim != Kind::sgd && optim != Kind::lars)
    for (const char* name : {"momentum", "nesterov"}) unused(name, concat("--optim is ", optim));
  const bool has_adapters = path_exists(path_join(c.model.model_name_or_path, "adapter_config.json"));
  if (c.model.lora_r == 0)
    for (const char* name : {"lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save", "use_rslora"})
      unused(name,
             has_adapters ? "the adapters of --model_name_or_path continue to be trained" : "--lora_r is not given");
  if (c.model.lora_r == 0 && !has_adapters) unused("lora_merge", "--lora_r is not given");
  if (c.model.vision_tower.empty())
    for (const char* name :
         {"pretrain_mm_mlp_adapter", "mm_projector_type", "mm_vision_select_layer", "mm_vision_select_feature"})
      unused(name, "--vision_tower is not given");
  for (const char* name : {"adam_beta1", "adam_beta2"})
    if (!adam && optim != Kind::lion && optim != Kind::lion_8bit && optim != Kind::lamb)
      unused(name, concat("--optim is ", optim));
  if (!adam)
    unused("adam_epsilon", optim == Kind::sgd
                               ? "--optim is sgd"
                               : concat("--optim is ", optim, ", whose parameters are set by --optim_args"));
  if (!c.optimization.bf16_optimizer_states) unused("stochastic_rounding", "--bf16_optimizer_states is not given");
  if (!corpus::may_hold_examples(c.data.train_file))
    for (const char* name :
         {"packing", "max_seq_length", "assistant_only_loss", "completion_only_loss", "text_column_name", "column_map",
          "group_by_length", "group_by_modality_length", "image_folder", "image_aspect_ratio", "version"})
      unused(name, "--train_file is not a .jsonl file of examples");
  if (!c.data.streaming) unused("streaming_buffer", "--streaming is not given");
  if (!corpus::has_weights(c.data.train_file)) unused("blend_mode", "--train_file has no weights");
  if (!reports_to(c.output, "tensorboard")) unused("logging_dir", concat("--report_to is ", c.output.report_to));
  if (c.optimization.max_steps > 0) unused("num_train_epochs", "--max_steps determines the length of the run");
  if (!c.data.validation_file.empty()) unused("validation_split_percentage", "--validation_file is given");
  if (c.output.save_state_dict_type == StateDictType::local && c.model.lora_r == 0)
    lines.note(concat(resolved.origin("save_state_dict_type"),
                      resolved.origin("save_state_dict_type").is_flag() ? "" : ": save_state_dict_type",
                      " local is written as sharded, which any number of processes can read"));
  unused_training(resolved, unused);
  unused_sharding(resolved, unused);
  unused_mesh(resolved, unused);
  return lines.take();
}

}  // namespace tessera::config
