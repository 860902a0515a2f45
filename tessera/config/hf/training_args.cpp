#include <tessera/config/hf/training_args.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/names/module_names.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/overrides.h>

#include <algorithm>
#include <map>

namespace tessera::config {
namespace {

using Shape = ArgumentShape;
using Strings = std::vector<std::string>;

/// Reads a file name as an object; text of an object and "key=value,..." are returned unchanged.
std::string object_text(const std::string& text, ArgumentMeaning& meaning) {
  const std::string trimmed = trim(text);
  if (trimmed.starts_with("{") || trimmed.find('=') != std::string::npos) return trimmed;
  if (!path_exists(trimmed)) {
    meaning.problem = concat(" ", text, ": no such file (an object starts with '{')");
    return {};
  }
  try {
    return dump_json(read_settings_file(trimmed, "object"), -1);
  } catch (const InputError& error) {
    meaning.problem = concat(": ", error.what());
    return {};
  }
}

Strings words_of(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ',' || c == '[' || c == ']' || c == '\'' || c == '"'; }, ' ');
  Strings words;
  for (const std::string& word : split(text, ' '))
    if (!trim(word).empty()) words.push_back(trim(word));
  return words;
}

/// Whether this value of the argument has no effect.
bool asks_for_nothing(const TrainingArgument& argument, const std::string& text) {
  const std::string word = to_lower(trim(text));
  if (word.empty() || word == "none" || word == "null" || word == "[]") return true;
  if (argument.row.effect == Effect::acts) return false;
  for (const std::string& unset : split(argument.unset, '|')) {
    if (unset.empty()) continue;
    if (word == unset) return true;
    if (argument.shape == Shape::boolean && parse_bool(word) && parse_bool(word) == parse_bool(unset)) return true;
    const auto number = parse_real(word);
    if (number && parse_real(unset) && *number == *parse_real(unset)) return true;
  }
  return false;
}

/// Why one of transformers' optimizers or schedules, or a LLaVA option, is not available; empty for other words.
std::string_view not_built(std::string_view key, std::string_view word) {
  struct Refusal {
    std::string_view part;  ///< substring of the word; the first match applies
    bool whole;
    std::string_view why;
  };
  static constexpr Refusal optimizers[] = {
      {"galore_", false,
       "projected gradients are not implemented: --lora_r 8 trains low-rank adapters, --optim adafactor has small "
       "states"},
      {"apollo_", false,
       "projected gradients are not implemented: --lora_r 8 trains low-rank adapters, --optim adafactor has small "
       "states"},
      {"rmsprop_bnb_8bit", true,
       "8-bit states are implemented for adamw and lion: --optim rmsprop keeps 32-bit states, --optim adamw_8bit two "
       "8-bit ones"},
      {"adamw_torch_8bit", true, "8-bit states are implemented as in bitsandbytes: use --optim adamw_8bit"},
      {"4bit", false,
       "4-bit states are not implemented: --optim adamw_8bit keeps 8-bit ones, --zero_stage 1 shards them over "
       "processes"},
      {"adamw_torch_npu_fused", true, "NPUs are not supported: use --optim adamw"},
      {"adamw_anyprecision", true, "the equivalent is --optim adamw --bf16_optimizer_states"},
      {"schedule_free_", false,
       "it is not implemented: --optim adamw --lr_scheduler_type constant_with_warmup is the closest alternative"},
      {"lomo", true, "it is not implemented: --optim sgd has no states, --optim adafactor small ones"},
      {"adalomo", true, "it is not implemented: --optim sgd has no states, --optim adafactor small ones"},
      {"ademamix", false, "it is not implemented: --optim adamw is the closest alternative"},
      {"grokadamw", true, "it is not implemented: --optim adamw is the closest alternative"},
      {"stable_adamw", true, "it is not implemented: --optim adamw with --max_grad_norm is the closest alternative"},
  };
  if (key == "image_aspect_ratio")
    return word.starts_with("anyres") ? "images in several parts are not implemented: use square or pad"
                                      : std::string_view();
  if (key == "lr_scheduler_type")
    return word == "greedy" ? "it is not implemented: reduce_lr_on_plateau also follows the evaluation loss"
                            : std::string_view();
  for (const auto& [part, whole, why] : optimizers)
    if (whole ? word == part : word.find(part) != std::string_view::npos) return why;
  return {};
}

ArgumentMeaning report_to(const std::string& text) {
  static const Strings others = {"azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive",
                                 "flyte",    "mlflow",  "neptune",    "swanlab",  "trackio", "wandb"};
  static const Strings ours = {"tensorboard", "csv", "none", "all"};
  ArgumentMeaning meaning;
  Strings chosen;
  for (const std::string& written : words_of(text)) {
    const std::string word = to_lower(written);
    if (std::find(ours.begin(), ours.end(), word) != ours.end()) {
      chosen.push_back(word);
    } else if (std::find(others.begin(), others.end(), word) != others.end()) {
      meaning.without_effect.push_back({word,
                                        "metrics go to TensorBoard or CSV (--report_to), and "
                                        "always to metrics.jsonl and report.html"});
    } else {
      Strings known = others;
      known.insert(known.end(), ours.begin(), ours.end());
      const auto near = nearest(word, known);
      meaning.problem = concat(" is '", written, "'; it must be one of ", join(ours),
                               near ? concat(" (did you mean ", *near, "?)") : "");
      return meaning;
    }
  }
  meaning.settings.emplace_back("report_to", chosen.empty() ? "none" : join(chosen, ","));
  return meaning;
}

/// Reads an object whose keys have their own rows: accelerator_config, parallelism_config.
class ObjectReader {
 public:
  explicit ObjectReader(ArgumentMeaning& meaning) : meaning_(meaning) {}

  void read(const std::string& section, const Value& object) {
    if (!object.is_object()) return problem(": expected an object");
    for (const auto& [key, value] : object.members()) {
      const std::string name = concat(section, ".", key);
      const TrainingArgument* argument = find_training_argument(name);
      if (argument == nullptr) {
        unknown(section, key);
      } else if (const auto text = value.is_object() ? std::optional(dump_json(value, -1)) : as_text(value, true);
                 !value.is_null()) {
        if (!text)
          problem(concat(": ", key, " is a list"));
        else
          take(*argument, key, *text, value);
      }
    }
  }

  /// Combines dp_replicate_size replicas of dp_shard_size x cp_size shards.
  void divide() {
    const std::int64_t context = std::max<std::int64_t>(1, sizes_["cp_size"]), sp = sizes_["sp_size"];
    const std::int64_t parts = std::max<std::int64_t>(1, sizes_["dp_shard_size"]) * context;
    const std::int64_t copies = sizes_["dp_replicate_size"], tp = sizes_["tp_size"];
    const auto give = [&](const char* setting, std::string text) {
      meaning_.settings.emplace_back(setting, std::move(text));
    };
    if (context > 1 && sp > 1)
      return problem(concat(": sp_size ", sp, " and cp_size ", context, " both divide the sequence: keep one of them"));
    if (parts > 1) {
      give("strategy", copies > 1 ? "hybrid_shard" : "full_shard");
      give("shard_group_size", std::to_string(parts * std::max<std::int64_t>(1, sp)));
    } else if (copies > 1) {
      give("strategy", "ddp");
    }
    if (tp > 1) give("tp_size", std::to_string(tp));
    if (context > 1 || sp > 1) give("cp_size", std::to_string(std::max(context, sp)));
    if (sp > 1) give("cp_comm_type", "a2a");
    if (sp <= 1 && !strategy_.empty()) give("cp_comm_type", strategy_ == "allgather" ? "all_gather" : "p2p");
  }

 private:
  void problem(const std::string& what) {
    if (meaning_.problem.empty()) meaning_.problem = what;
  }

  void unknown(const std::string& section, const std::string& key) {
    Strings names;
    for (const KeyRow& row : training_args_rows())
      if (row.key.starts_with(section + ".")) names.emplace_back(row.key.substr(section.size() + 1));
    const auto near = nearest(key, names);
    problem(concat(": unknown key ", key,
                   near ? concat("; did you mean ", *near, "?") : concat("; the keys are ", join(names))));
  }

  void take(const TrainingArgument& argument, const std::string& key, const std::string& text, const Value& value) {
    if (asks_for_nothing(argument, text)) return;
    if (argument.row.effect == Effect::ignored)
      return meaning_.without_effect.push_back({key, std::string(argument.row.why)});
    if (argument.row.effect == Effect::refused) return problem(concat(": ", key, ": ", argument.row.why));
    if (key == "gradient_accumulation_kwargs") return accumulation(value);
    if (key == "cp_handler") return handler(value);
    const auto size = parse_int(text);
    if (!size || *size < -1 || *size > most_processes)
      return problem(concat(": ", key, " is '", text, "'; it must be a number of processes"));
    sizes_[key] = *size;
  }

  /// Reads accelerate's TorchContextParallelConfig.
  void handler(const Value& value) {
    const Value* strategy = value.is_object() ? value.find("cp_comm_strategy") : nullptr;
    if (strategy == nullptr || strategy->is_null()) return;
    const auto word = as_text(*strategy, true);
    if (!word || (*word != "allgather" && *word != "alltoall"))
      return problem(": cp_handler: cp_comm_strategy is one of allgather, alltoall");
    strategy_ = *word;
  }

  void accumulation(const Value& value) {
    if (!value.is_object()) return problem(": gradient_accumulation_kwargs must be an object");
    for (const auto& [key, inner] : value.members()) {
      const auto text = as_text(inner, true);
      if (key == "num_steps" && text)
        meaning_.settings.emplace_back("gradient_accumulation_steps", *text);
      else if (key == "adjust_scheduler" || key == "sync_with_dataloader" || key == "sync_each_batch")
        meaning_.without_effect.push_back(
            {key, "the schedule advances, and gradients are reduced, once per optimizer step"});
      else
        problem(concat(": unknown key ", key,
                       "; the keys are num_steps, adjust_scheduler, sync_with_dataloader, sync_each_batch"));
    }
  }

  static constexpr std::int64_t most_processes = 1 << 20;
  ArgumentMeaning& meaning_;
  std::map<std::string, std::int64_t> sizes_;  ///< by key; 0: not given
  std::string strategy_;                       ///< cp_handler's
};

ArgumentMeaning object_of(const TrainingArgument& argument, const std::string& text) {
  ArgumentMeaning meaning;
  const std::string key(argument.row.key);
  const std::string object = object_text(text, meaning);
  if (!meaning.problem.empty()) return meaning;
  if (key != "accelerator_config" && key != "parallelism_config") {
    if (object != "{}") meaning.settings.emplace_back(argument.row.setting, object);
    return meaning;
  }
  try {
    ObjectReader reader(meaning);
    reader.read(key, Value::make_object(parse_overrides(object, key)));
    reader.divide();
  } catch (const InputError& error) {
    meaning.problem = concat(": ", error.what());
  }
  return meaning;
}

ArgumentMeaning of_boolean(const TrainingArgument& argument, const std::string& text) {
  ArgumentMeaning meaning;
  const std::string_view key = argument.row.key;
  const auto flag = parse_bool(trim(text));
  if (argument.row.setting == "lora_r") {  // false: no adapters, regardless of the rank
    if (!flag) meaning.settings.emplace_back(argument.row.setting, text);
    if (flag == false) meaning.off = argument.row.setting;
    return meaning;
  }
  if (key == "use_cpu" || key == "no_cuda" || key == "adafactor" || key == "strict") {
    const char* const word = key == "adafactor" ? "adafactor" : key == "strict" ? "refuse" : "cpu";
    if (!flag)
      meaning.problem = concat(" is '", text, "'; it must be true or false");
    else if (*flag)
      meaning.settings.emplace_back(argument.row.setting, word);
    return meaning;
  }
  meaning.settings.emplace_back(argument.row.setting, flag ? *flag ? "true" : "false" : text);
  return meaning;
}

ArgumentMeaning own_meaning(const TrainingArgument& argument, const std::string& text) {
  const KeyRow& row = argument.row;
  ArgumentMeaning meaning;
  if (row.key == "report_to") return report_to(text);
  if (row.key == "tp_size" && parse_int(trim(text)) == 0) return meaning;
  if (row.effect != Effect::acts) {
    if (asks_for_nothing(argument, text)) return meaning;
    if (row.effect == Effect::ignored)
      meaning.without_effect.push_back({"", std::string(row.why)});
    else
      meaning.problem = concat(": ", row.why);
    return meaning;
  }
  if (row.key == "fsdp") {
    if (!asks_for_nothing(argument, text))
      meaning.settings.emplace_back("fsdp", text);
    else if (trim(text) == "" || trim(text) == "[]")
      meaning.settings.emplace_back("fsdp", "false");
    return meaning;
  }
  if (row.key == "fsdp_config" || row.key == "deepspeed") {  // read by their own front ends
    if (row.key == "fsdp_config" || trim(text) != "{}") meaning.settings.emplace_back(row.setting, text);
    return meaning;
  }
  if (row.key == "optim" || row.key == "lr_scheduler_type" || row.key == "image_aspect_ratio") {
    if (row.key == "image_aspect_ratio" && to_lower(trim(text)) == "none") return meaning;
    if (const std::string_view why = not_built(row.key, to_lower(trim(text))); !why.empty()) {
      meaning.problem = concat(" ", trim(text), ": ", why);
      return meaning;
    }
  }
  if (row.key == "optim" && to_lower(trim(text)).starts_with("paged_"))  // same results as without paging
    meaning.without_effect.push_back(
        {concat(trim(text), "'s paging"),
         "states stay where they are created; --cpu_offload optimizer keeps any optimizer's states on the host"});
  if (argument.shape == Shape::object) return object_of(argument, text);
  if (argument.shape == Shape::boolean) return of_boolean(argument, text);
  if (row.setting == "lora_target_modules" || row.setting == "lora_modules_to_save") {  // a list, or words
    std::string names = trim(text);
    const bool listed = names.starts_with('[');
    // PEFT treats a lone string as a pattern
    if (row.key == "lora_target_modules" && !listed && is_module_pattern(names)) {
      meaning.settings.emplace_back(row.setting, names);
      return meaning;
    }
    std::erase_if(names, [](char c) { return std::string_view("[]'\"").find(c) != std::string_view::npos; });
    for (std::size_t at; (at = names.find(", ")) != std::string::npos;) names.erase(at + 1, 1);
    std::replace(names.begin(), names.end(), ' ', ',');
    const std::string lower = to_lower(names);
    if (is_module_pattern(names))
      meaning.problem =
          concat(" ", trim(text), ": a pattern ", listed ? "in a list" : "", " does not name modules: use ",
                 row.key == "lora_target_modules" ? "a single pattern, or " : "", "module name suffixes");
    else
      meaning.settings.emplace_back(
          row.setting, lower == "all-linear" || lower == "all_linear" || (row.key == "lora_target" && lower == "all")
                           ? "all-linear"
                           : names);
    return meaning;
  }
  if (row.key == "bits") {  // LLaVA's and QLoRA's
    const std::string bits = trim(text);
    if (bits == "4" || bits == "8")
      meaning.settings.emplace_back(bits == "4" ? "load_in_4bit" : "load_in_8bit", "true");
    else if (bits != "16" && bits != "32")
      meaning.problem = concat(" is '", text, "'; it must be 4 or 8, or 16 for unquantized weights");
    return meaning;
  }
  if (row.key == "loss_type") {  // TRL's trainers have losses that are not implemented here
    const std::string word = to_lower(trim(text));
    const bool built = parse_word<PreferenceLoss>(word).has_value();
    if (word == "nll" || word == "cross_entropy") return meaning;  // the only losses for tokens and for classes
    if (built)
      meaning.settings.emplace_back(row.setting, word);
    else
      meaning.problem = concat(" ", word, ": this preference loss is not implemented: use sigmoid (DPO), hinge, ",
                               "ipo, simpo, orpo, apo_zero or apo_down");
    return meaning;
  }
  if (row.key == "model_type") {
    meaning.implied.emplace_back(row.setting, text);
    return meaning;
  }
  if (row.key == "checkpointing_steps") {
    const bool by_epoch = to_lower(trim(text)) == "epoch";
    meaning.settings.emplace_back("save_strategy", by_epoch ? "epoch" : "steps");
    if (!by_epoch) meaning.settings.emplace_back(row.setting, text);
    return meaning;
  }
  if ((row.key == "max_train_samples" || row.key == "max_eval_samples") && trim(text) == "-1") return meaning;  // all
  // transformers v5: warmup_steps between 0 and 1 is a share of all steps
  const auto number = parse_real(text);
  const bool share = row.key == "warmup_steps" && number && *number > 0 && *number < 1;
  meaning.settings.emplace_back(share ? "warmup_ratio" : row.setting, text);
  return meaning;
}

}  // namespace

ArgumentMeaning meaning_of(const TrainingArgument& argument, const std::string& text) {
  ArgumentMeaning meaning = own_meaning(argument, text);
  const bool of_sft = argument.row.key == "loss_type" && meaning.settings.empty();  // nll, the SFTTrainer's
  const bool says_nothing = argument.program == trl_or_another && meaning.without_effect.empty();
  if (!argument.program.empty() && !of_sft && !says_nothing) {
    meaning.implied = defaults_beside(argument.program, argument.row.key, text);
    meaning.program = argument.program;
  }
  return meaning;
}

std::string without_effect_note(const std::vector<WithoutEffect>& list) {
  std::vector<std::pair<std::string, Strings>> by_reason;
  for (const WithoutEffect& one : list) {
    const auto found =
        std::find_if(by_reason.begin(), by_reason.end(), [&](const auto& reason) { return reason.first == one.why; });
    if (found == by_reason.end())
      by_reason.push_back({one.why, {one.what}});
    else if (std::find(found->second.begin(), found->second.end(), one.what) == found->second.end())
      found->second.push_back(one.what);
  }
  if (by_reason.empty()) return {};
  Strings parts;
  for (const auto& [why, names] : by_reason) parts.push_back(concat(join(names), ": ", why));
  if (by_reason.size() == 1) {
    const Strings& names = by_reason.front().second;
    return concat(join(names), names.size() == 1 ? " has" : " have", " no effect: ", by_reason.front().first);
  }
  return concat("arguments without effect: ", join(parts, "; "));
}

}  // namespace tessera::config
