#include <tessera/config/megatron/megatron_args.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/megatron/megatron_reading.h>
#include <tessera/layout/batch/ramp.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace tessera::config {
namespace {

// Names that only Megatron has: any of them makes the other arguments Megatron's as well.
constexpr std::string_view signs[] = {"pipeline_model_parallel_size",
                                      "expert_model_parallel_size",
                                      "train_iters",
                                      "train_samples",
                                      "lr_decay_style",
                                      "lr_decay_iters",
                                      "lr_decay_samples",
                                      "lr_warmup_iters",
                                      "lr_warmup_fraction",
                                      "lr_warmup_samples",
                                      "use_distributed_optimizer",
                                      "recompute_granularity",
                                      "recompute_activations",
                                      "use_mcore_models"};
// Also aliases of our settings, so they count only together with another argument of Megatron's.
constexpr std::string_view shared_signs[] = {"tensor_model_parallel_size", "context_parallel_size"};
// Names of transformers' arguments: with any of them, no argument counts as Megatron's.
constexpr std::string_view opposites[] = {"model_name_or_path", "learning_rate", "num_train_epochs"};

/// "--train-iters=5" -> "train_iters"; empty: not a flag.
std::string name_of(const std::string& argument) {
  if (!argument.starts_with("--") || argument.size() < 3) return {};
  std::string name =
      argument.substr(2, argument.find('=') == std::string::npos ? std::string::npos : argument.find('=') - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool is_among(std::span<const std::string_view> names, const FileWord& argument) {
  return std::find(names.begin(), names.end(), name_of(argument.text)) != names.end();
}

/// Whether a name is a setting of ours. Aliases do not count: among Megatron's arguments they have Megatron's meaning.
bool is_ours(std::string_view name) { return find_field(name) != nullptr; }

class Reader {
 public:
  Reader(std::vector<FileWord>& arguments, Problems& problems, const GetEnvironment& environment)
      : arguments_(arguments), problems_(problems), environment_(environment), to_(problems), a_(to_, problems) {}

  Translation read() {
    take_arguments();
    const std::size_t before = problems_.lines.size();
    std::size_t left = a_.all().size();
    for (const auto& [name, given] : a_.all()) {
      if (problems_.lines.size() - before >= most_megatron_problems) {
        problems_.lines.push_back(concat(left, " more of Megatron's arguments were not checked"));
        return to_.take();
      }
      --left;
      by_row(name);
    }
    without_experts();
    mesh();
    strategy();
    translate_megatron_recompute(a_);
    batch();
    schedule();
    translate_megatron_optimizer(a_);
    translate_megatron_data(a_);
    translate_megatron_load(a_);
    const bool model_given = typed("config_name") || typed("model_name_or_path");
    translate_megatron_model(a_, model_given, typed("config_overrides"));
    translate_megatron_balance(a_, model_given);
    defaults();
    return to_.take();
  }

 private:
  bool typed(std::string_view name) const {
    return std::any_of(arguments_.begin(), arguments_.end(),
                       [&](const FileWord& argument) { return name_of(argument.text) == name; });
  }

  void take_arguments() {
    std::vector<FileWord> rest;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const std::string& argument = arguments_[i].text;
      const std::string name = name_of(argument);
      if (name.empty() || is_ours(name) || find_megatron_key(name) == nullptr) {
        rest.push_back(arguments_[i]);
        continue;
      }
      const std::size_t equals = argument.find('=');
      MegatronArguments::Given given{argument.substr(0, equals), {}, arguments_[i].where};
      if (equals != std::string::npos) {
        given.values.push_back(argument.substr(equals + 1));
      } else if (const MegatronRow* row = find_megatron_row(name);
                 row == nullptr || (row->act != MegatronRow::Act::standing && row->act != MegatronRow::Act::constant)) {
        while (i + 1 < arguments_.size() && !arguments_[i + 1].text.starts_with("--"))
          given.values.push_back(arguments_[++i].text);
      }
      a_.add(name, std::move(given));
    }
    arguments_ = std::move(rest);
  }

  /// Handles rows that are complete: ignored, refused, or one value for one setting.
  void by_row(const std::string& name) {
    const KeyRow& row = *find_megatron_key(name);
    if (row.effect == Effect::ignored) return a_.note(name, concat("has no effect: ", row.why));
    if (name == "exit_on_missing_checkpoint" && !a_.has("load"))
      return a_.note(name, "has no effect: nothing is loaded");
    if ((name == "no_load_optim" || name == "finetune") && loads_nothing(a_))
      return a_.note(name, "has no effect: nothing is loaded");
    if (name == "reset_attention_mask" || name == "eod_mask_loss") {
      const bool attention = name == "reset_attention_mask";
      if (typed("reset_position_ids"))
        return a_.note(name, concat("has no effect: --reset-position-ids ",
                                    attention ? "resets the attention as well"
                                              : "also masks the loss after the end of a document"));
      return a_.problem(name,
                        concat("needs --reset-position-ids, which ",
                               attention ? "resets positions and attention: one without the other is not implemented"
                                         : "separates the documents of a block: without it all tokens are scored; add "
                                           "it, or remove this one"));
    }
    if (name == "no_pipeline_parallel") {
      const auto stages = a_.whole("pipeline_model_parallel_size", 1);
      return stages.value_or(1) > 1 ? a_.problem(name, concat("contradicts --pipeline-model-parallel-size ", *stages,
                                                              ": keep one of them"))
                                    : a_.note(name, "has no effect: by default a model is not cut into stages");
    }
    if (name == "no_position_embedding")
      return has_rope() ? a_.note(name, "has no effect: rotary positions are not embeddings")
                        : a_.problem(name, "needs --position-embedding-type rope: without it positions are learned",
                                     {"config_overrides"});
    if (name == "rotary_percent" && !has_rope())
      return a_.note(name, "has no effect: it is for --position-embedding-type rope");
    if (row.effect == Effect::refused) return a_.problem(name, concat("is not supported: ", row.why));
    const MegatronRow& how = *find_megatron_row(name);
    if (how.act == MegatronRow::Act::constant) return a_.give(name, row.setting, std::string(how.text));
    if (name == "train_iters" && exits_early()) return a_.give("exit_interval", row.setting, *a_.text("exit_interval"));
    if (how.act == MegatronRow::Act::value)
      if (const auto text = a_.text(name)) a_.give(name, row.setting, *text);
    if (name == "lr_warmup_fraction") warmup();
    if (name == "first_last_layers_bf16")
      for (const char* setting : {"num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"})
        if (!typed(setting)) a_.give(name, setting, "1");
    if (name == "activations_checkpoint_method" && a_.word(name, {"uniform", "block"}))
      a_.give(name, row.setting, "true");
    if (name == "weight_decay_incr_style") a_.word(name, {"constant"});
    if (name == "distributed_backend")
      if (const auto word = a_.word(name, {"nccl", "gloo"}))
        a_.give(name, *word == "nccl" ? "device" : row.setting, *word == "nccl" ? "auto" : *word);
    if (name == "non_persistent_ckpt_type") {
      if (const auto word = a_.word(name, {"global", "local", "in_memory"}); word && *word != "in_memory")
        a_.problem(name,
                   concat(*word, " is not supported: copies between checkpoints are kept in memory; use in_memory"));
    }
    if (name == "distributed_timeout_minutes")
      if (const auto minutes = a_.real(name, 0)) a_.give(name, row.setting, format_real(*minutes * 60));
    if (name == "initial_loss_scale")
      if (const auto scale = a_.real(name, 1)) {
        const double power = std::log2(*scale);
        if (power != std::floor(power))
          a_.problem(name, concat(format_real(*scale), ": the scale must be a power of two, such as 65536"),
                     {"initial_scale_power"});
        else
          a_.give(name, row.setting, std::to_string(static_cast<int>(power)));
      }
  }

  /// Checks expert arguments of a model without experts; Megatron accepts any size there.
  void without_experts() {
    if (!a_.has("num_layers") || a_.has("num_experts")) return;
    if (const auto ranks = a_.whole("expert_model_parallel_size", 1); ranks && *ranks > 1) {
      a_.problem("expert_model_parallel_size", concat(*ranks, " needs --num-experts"));
      a_.forget("expert_model_parallel_size");
    }
    if (!a_.has("expert_tensor_parallel_size")) return;
    a_.note("expert_tensor_parallel_size", "has no effect: it is for mixtures of experts (--num-experts)");
    a_.forget("expert_tensor_parallel_size");
  }

  void mesh() {
    const std::int64_t ep = divided("expert_model_parallel_size", "ep_size");
    if (const auto size = a_.whole("expert_tensor_parallel_size", 1); size && (ep > 1 || *size > 1))
      a_.give("expert_tensor_parallel_size", "etp_size", std::to_string(*size));
    const std::int64_t pp = translate_megatron_pipeline(a_, typed("pipeline_schedule"));
    const std::int64_t tp = divided("tensor_model_parallel_size", "tp_size");
    const std::int64_t cp = divided("context_parallel_size", "cp_size");
    if (std::max({pp, tp, cp}) <= most_processes) ranks_per_sample_ = pp * tp * cp, cp_ = cp;
    if (tp == 1) without_sequence_parallel();
    if (a_.has("hierarchical_context_parallel_sizes")) levels(cp);
  }

  std::int64_t divided(const char* name, const char* setting) {
    const auto size = a_.whole(name, 1);
    if (size && *size > 1) a_.give(name, setting, std::to_string(*size));
    return size.value_or(1);
  }

  /// Reports sequence parallelism without tensor parallelism, which Megatron ignores as well (arguments.py: "Disabling
  /// sequence parallelism ...").
  void without_sequence_parallel() {
    const auto place = std::find_if(arguments_.begin(), arguments_.end(), [](const FileWord& argument) {
      return name_of(argument.text) == "sequence_parallel";
    });
    if (place == arguments_.end()) return;
    const std::size_t equals = place->text.find('=');
    a_.add("sequence_parallel", {place->text.substr(0, equals), {}, place->where});
    arguments_.erase(place);
    a_.note("sequence_parallel", "has no effect: it is for tensor parallelism, whose size is 1");
  }

  /// Reads "2 4": sizes of the groups that exchange heads, and of the rings across them (--cp-comm-type a2a+p2p).
  void levels(std::int64_t cp) {
    constexpr const char* name = "hierarchical_context_parallel_sizes";
    const std::vector<std::string> sizes = tessera::split(join(a_.find(name)->values, " "), ' ');  // one word in a file
    const std::int64_t heads = sizes.size() == 2 ? parse_int(sizes[0]).value_or(0) : 0;
    const std::int64_t ring = sizes.size() == 2 ? parse_int(sizes[1]).value_or(0) : 0;
    if (std::min(heads, ring) < 2 || std::max(heads, ring) > most_processes || heads * ring != cp)
      return a_.problem(
          name, concat(join(sizes, " "), ": expected two sizes of at least 2 whose product is --context-parallel-size ",
                       cp, ", such as 2 4 for 8"));
    a_.give(name, "cp_a2a_size", sizes[0]);
  }

  /// Whether positions are rotary.
  bool has_rope() {
    return a_.has("use_rotary_position_embeddings") ||
           a_.word("position_embedding_type", {"learned_absolute", "rope"}) == "rope";
  }

  void strategy() {
    const char* fsdp = a_.has("use_torch_fsdp2")     ? "use_torch_fsdp2"
                       : a_.has("use_megatron_fsdp") ? "use_megatron_fsdp"
                       : a_.has("use_custom_fsdp")   ? "use_custom_fsdp"
                                                     : nullptr;
    const auto word =
        a_.word("data_parallel_sharding_strategy", {"no_shard", "optim", "optim_grads", "optim_grads_params"});
    if (word && fsdp == nullptr)
      a_.problem("data_parallel_sharding_strategy", concat(*word, " needs --use-megatron-fsdp"), {"strategy"});
    else if (word)
      a_.give("data_parallel_sharding_strategy", "strategy",
              *word == "no_shard"      ? "ddp"
              : *word == "optim"       ? "zero1"
              : *word == "optim_grads" ? "zero2"
                                       : "full_shard");
    else if (fsdp != nullptr)
      a_.give(fsdp, "strategy", "full_shard");
    else if (a_.has("use_distributed_optimizer"))
      a_.give("use_distributed_optimizer", "strategy", "zero1");
    copies();
    if (const auto outer = a_.word("outer_dp_sharding_strategy", {"no_shard", "optim"}); outer == "optim") {
      const auto instances = a_.whole("num_distributed_optimizer_instances", 1);
      if (instances.value_or(1) > 1)
        a_.problem("outer_dp_sharding_strategy",
                   concat("optim is not supported: the optimizer's states are sharded within each of the ", *instances,
                          " replicas of the shards, not over them; remove it, or shard one replica over all processes "
                          "(--num-distributed-optimizer-instances 1)"),
                   {"strategy"});
      else
        a_.note("outer_dp_sharding_strategy", "has no effect: the shards have no replicas");
    }
  }

  /// Instances of the distributed optimizer: replicas of the shards, each over an equal part of the ranks of dp x cp.
  void copies() {
    constexpr const char* name = "num_distributed_optimizer_instances";
    const auto copies = a_.whole(name, 1);
    if (!copies || *copies == 1) return;
    if (!to_.given("strategy"))
      return a_.note(name, "has no effect: --use-distributed-optimizer is not given, so nothing is sharded");
    const std::int64_t sharers = replicas() * cp_;
    if (sharers % *copies != 0)
      return a_.problem(name, concat(*copies, " does not divide the ", sharers,
                                     " processes that would share the optimizer's states"));
    a_.give(name, "shard_group_size", std::to_string(sharers / *copies));
  }

  /// From --num_processes, or the launcher's WORLD_SIZE; 1 without both.
  std::int64_t processes() const {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const std::string& word = arguments_[i].text;
      if (const std::string name = name_of(word); name != "num_processes" && name != "nproc_per_node") continue;
      const std::size_t equals = word.find('=');
      const std::string text = equals != std::string::npos ? word.substr(equals + 1)
                               : i + 1 < arguments_.size() ? arguments_[i + 1].text
                                                           : "";
      if (const auto number = parse_int(text); number && *number > 0) return *number;
    }
    const auto world = look_up(environment_, "WORLD_SIZE");
    const auto number = world ? parse_int(*world) : std::nullopt;
    return number && *number > 0 && *number <= 1 << 20 ? *number : 1;
  }

  std::int64_t replicas() const { return std::max<std::int64_t>(1, processes() / ranks_per_sample_); }

  /// Megatron's default: one micro-batch of every replica (arguments.py: "setting global batch size to ...").
  std::optional<std::int64_t> global_batch() {
    if (a_.has(steps_of_batch)) {
      const auto grows = ramp();
      return grows ? std::optional(grows->steps.back().rows) : std::nullopt;
    }
    if (a_.has("global_batch_size")) return a_.whole("global_batch_size", 1);
    const auto micro = a_.whole("micro_batch_size", 1);
    return micro && *micro <= 1 << 20 ? std::optional(*micro * replicas()) : std::nullopt;
  }

  /// The argument that defines the batch's growth.
  const char* growth() const { return a_.has(steps_of_batch) ? steps_of_batch : "rampup_batch_size"; }

  /// Reads "32 32 1000000", or "0:384 200B:768" in tokens; in a file it is a single word. nullopt also for invalid
  /// values, which are reported once.
  std::optional<layout::BatchRamp> ramp() {
    const auto* given = a_.find(growth());
    if (given == nullptr || wrong_ramp_) return std::nullopt;
    const bool list = growth() == steps_of_batch;
    const std::string text = ungrouped(join(given->values, " "));
    const auto length = list ? a_.whole("seq_length", 1) : std::nullopt;
    try {
      layout::BatchRamp grows = layout::parse_batch_ramp(text);
      if (list == grows.steps.empty() || (list && !length)) throw InputError("");
      for (layout::BatchStep& step : grows.steps) step.after /= *length;
      return layout::parse_batch_ramp(layout::to_text(grows));  // entries may have become equal
    } catch (const InputError&) {
      wrong_ramp_ = true;
      a_.problem(growth(),
                 concat(text, list ? ": expected TOKENS:ROWS TOKENS:ROWS ..., starting at 0 and both increasing, such "
                                     "as 0:384 200B:768, with --seq-length"
                                   : ": expected START INCREMENT SAMPLES, such as 32 32 1000000"),
                 {"batch_size_schedule"});
      return std::nullopt;
    }
  }

  /// Number of whole steps in this many samples.
  std::int64_t steps_of(std::int64_t samples, std::int64_t global) {
    const auto grows = ramp();
    if (!grows || layout::ramp_rows(*grows, global, 0) > global) return samples / global;
    std::int64_t steps = 0, consumed = 0;
    for (;; ++steps) {
      const std::int64_t rows = layout::ramp_rows(*grows, global, consumed);
      if (rows == global) return steps + (samples - consumed) / global;
      if (consumed + rows > samples) return steps;
      consumed += rows;
    }
  }

  void batch() {
    if (const auto grows = ramp()) a_.give(growth(), "batch_size_schedule", layout::to_text(*grows));
    if (a_.has(steps_of_batch))
      for (const char* other : {"global_batch_size", "rampup_batch_size"})
        if (a_.has(other))
          return a_.problem(steps_of_batch,
                            concat("and ", a_.find(other)->flag, " exclude each other: use only one of them"),
                            {"batch_size_schedule"});
    const char* const whole_batch = a_.has(steps_of_batch) ? steps_of_batch : "global_batch_size";
    const auto micro = a_.whole("micro_batch_size", 1);
    const auto given = a_.has(whole_batch) ? global_batch() : std::nullopt;
    if (given && !micro)
      return a_.problem(whole_batch, concat(*given, " needs --micro-batch-size"), {"gradient_accumulation_steps"});
    if (given) {
      const std::int64_t ranks = replicas(), one = *micro * ranks;
      if (*micro > 1 << 20 || *given % one != 0)
        return a_.problem(
            whole_batch,
            concat(*given, " is not a multiple of --micro-batch-size ", *micro, " x ", ranks,
                   ranks_per_sample_ > 1 ? " data-parallel" : "", ranks == 1 ? " process" : " processes", " = ", one),
            {"gradient_accumulation_steps"});
      a_.give(whole_batch, "gradient_accumulation_steps", std::to_string(*given / one));
    }
    const auto global = global_batch();
    const auto steps = [&](const char* name, const char* setting, const char* instead) {
      const auto samples = a_.whole(name, 0);
      if (!samples) return;
      if (a_.has(instead))
        return a_.problem(name, concat("and ", a_.find(instead)->flag, " set the same value: use only one of them"),
                          {setting});
      if (!global) return a_.problem(name, concat(*samples, " needs --micro-batch-size"), {setting});
      const bool exits = std::string_view(name) == "train_samples" && exits_early();
      a_.give(exits ? "exit_interval" : name, setting,
              exits ? *a_.text("exit_interval") : std::to_string(steps_of(*samples, *global)));
    };
    steps("train_samples", "max_steps", "train_iters");
    steps("lr_warmup_samples", "warmup_steps", "lr_warmup_iters");
  }

  void schedule() {
    const auto style = a_.word("lr_decay_style", {"constant", "linear", "cosine", "inverse-square-root", "wsd"});
    if (style != "wsd")
      for (const char* name : {"lr_wsd_decay_style", "lr_wsd_decay_iters", "lr_wsd_decay_samples"})
        if (a_.has(name)) a_.note(name, "has no effect: it is for --lr-decay-style WSD");
    const double least = a_.real("min_lr", 0).value_or(0);
    const std::optional<std::int64_t> decay = decay_steps();
    const char* fall = a_.has("lr_decay_iters")     ? "lr_decay_iters"
                       : a_.has("lr_decay_samples") ? "lr_decay_samples"
                                                    : "exit_interval";
    const std::string begin = warmup_begin();
    if (style == "wsd") return stable_decay(least, decay, begin);
    if (!style && !a_.has("min_lr") && !decay && begin.empty()) return;
    if (a_.has("lr_decay_style") && !style) return;
    const std::string word = style.value_or("linear");
    const char* from = a_.has("lr_decay_style") ? "lr_decay_style"
                       : a_.has("min_lr")       ? "min_lr"
                       : decay                  ? fall
                                                : "lr_warmup_init";
    const std::string kwargs = format_real(least);
    if (word == "constant") {
      a_.give(from, "lr_scheduler_type", "constant_with_warmup");
      give_parameters({begin});
    } else if (word == "inverse-square-root") {
      a_.give(from, "lr_scheduler_type", "inverse_sqrt");
      give_parameters({begin});
      if (least > 0)
        a_.problem("min_lr", concat(kwargs, " is not supported by --lr-decay-style inverse-square-root: remove it"),
                   {"lr_scheduler_kwargs"});
    } else if (word == "linear") {
      a_.give(from, "lr_scheduler_type", least > 0 ? "polynomial" : "linear");
      give_parameters({least > 0 ? concat("power=1,lr_end=", kwargs) : "", falls_over(decay), begin}, fall);
    } else {
      a_.give(from, "lr_scheduler_type", least > 0 ? "cosine_with_min_lr" : "cosine");
      give_parameters({least > 0 ? concat("min_lr=", kwargs) : "", falls_over(decay), begin}, fall);
    }
  }

  /// Translates WSD: the rate is constant, then falls over the last steps (optimizer_param_scheduler.py).
  void stable_decay(double least, std::optional<std::int64_t> decay, const std::string& begin) {
    const auto shape = a_.word("lr_wsd_decay_style", {"exponential", "linear", "cosine", "minus_sqrt"});
    const char* from = a_.has("lr_wsd_decay_iters") ? "lr_wsd_decay_iters" : "lr_wsd_decay_samples";
    const auto count = a_.whole(from, 1), global = global_batch();
    const auto rate = a_.real("lr", 0);
    const auto doubtful = [&](const char* name, const std::string& what) {
      a_.problem(name, what, {"lr_scheduler_kwargs"});
    };
    if (!a_.has(from)) return doubtful("lr_decay_style", "WSD needs --lr-wsd-decay-iters, the steps of its decay");
    if (!count) return;
    if (from == std::string_view("lr_wsd_decay_samples") && !global)
      return doubtful(from, concat(*count, " needs --micro-batch-size"));
    if (least > 0 && !(rate && least <= *rate))
      return doubtful("min_lr", concat(format_real(least), " needs an --lr of at least this"));
    const bool iterations = from == std::string_view("lr_wsd_decay_iters");
    a_.give("lr_decay_style", "lr_scheduler_type", "warmup_stable_decay");
    a_.give(from, "lr_scheduler_kwargs",
            concat("num_decay_steps=", iterations ? *count : steps_of(*count, *global),
                   ",decay_type=", shape == "minus_sqrt" ? "1-sqrt" : shape.value_or("exponential"),
                   least > 0 ? concat(",min_lr_ratio=", format_real(least / *rate)) : "", decay ? "," : "",
                   falls_over(decay), ",", begin.empty() ? "warmup_init_lr=0" : begin));
  }

  /// Steps of the whole run, which --exit-interval may end earlier.
  std::optional<std::int64_t> all_steps() {
    if (a_.has("train_iters")) return a_.whole("train_iters", 1);
    const auto samples = a_.whole("train_samples", 1), global = global_batch();
    return samples && global ? std::optional(steps_of(*samples, *global)) : std::nullopt;
  }

  bool exits_early() {
    if (!a_.has("exit_interval")) return false;
    const auto exit = a_.whole("exit_interval", 1), all = all_steps();
    return exit && all && *exit < *all;
  }

  /// The steps over which the rate falls, if they differ from the run's.
  std::optional<std::int64_t> decay_steps() {
    const auto iterations = a_.whole("lr_decay_iters", 1), samples = a_.whole("lr_decay_samples", 1),
               global = global_batch();
    if (samples && !global) {
      a_.problem("lr_decay_samples", concat(*samples, " needs --micro-batch-size"), {"lr_scheduler_kwargs"});
      return std::nullopt;
    }
    const auto all = all_steps();
    if (!iterations && !samples) return exits_early() ? all : std::nullopt;
    const std::int64_t decay = iterations ? *iterations : steps_of(*samples, *global);
    return !exits_early() && all == decay ? std::nullopt : std::optional(decay);
  }

  /// Sets the warm-up, given as a share of the steps over which the rate falls.
  void warmup() {
    const auto share = a_.real("lr_warmup_fraction", 0);
    if (!share) return;
    if (*share > 1)
      return a_.problem("lr_warmup_fraction",
                        concat("is '", format_real(*share), "'; it must be a number from 0 to 1"));
    const auto decay = decay_steps();
    if (!decay) return a_.give("lr_warmup_fraction", "warmup_ratio", *a_.text("lr_warmup_fraction"));
    a_.give("lr_warmup_fraction", "warmup_steps", std::to_string(std::llround(*share * static_cast<double>(*decay))));
  }

  static std::string falls_over(std::optional<std::int64_t> decay) {
    return decay ? concat("num_training_steps=", *decay) : "";
  }

  /// The initial rate of the warm-up, as a parameter of the schedule; empty: 0.
  std::string warmup_begin() {
    constexpr const char* name = "lr_warmup_init";
    const double rate = a_.real(name, 0).value_or(0);
    if (rate == 0) return "";
    if (const auto peak = a_.real("lr", 0); peak && rate > *peak) {
      a_.problem(
          name,
          concat(format_real(rate), " is more than --lr ", format_real(*peak), ": the warm-up would decrease the rate"),
          {"lr_scheduler_kwargs"});
      return "";
    }
    if (typed("decoupled_lr") && !typed("decoupled_min_lr")) {
      a_.problem(name,
                 concat(format_real(rate),
                        " with --decoupled-lr needs --decoupled-min-lr: without it both rates rise in proportion "
                        "instead of starting from the same value"),
                 {"lr_scheduler_kwargs"});
      return "";
    }
    return concat("warmup_init_lr=", format_real(rate));
  }

  /// Sets the non-empty parameters.
  void give_parameters(std::vector<std::string> parameters, const char* fall = nullptr) {
    std::erase(parameters, "");
    if (parameters.empty()) return;
    const char* from = a_.has("min_lr") && fall != nullptr ? "min_lr"
                       : fall != nullptr && a_.has(fall)   ? fall
                                                           : "lr_warmup_init";
    a_.give(from, "lr_scheduler_kwargs", join(parameters, ","));
  }

  /// Megatron's defaults that differ from ours.
  void defaults() {
    for (const auto& [name, text] : {std::pair("weight_decay", "0.01"), std::pair("seed", "1234")})
      if (!typed(name)) to_.give(name, name, std::string(text), flag_position("Megatron's default"));
    if (!typed("fp16")) return;
    for (const auto& [name, text] :
         {std::pair("initial_scale_power", "32"), std::pair("loss_scale_window", "1000"), std::pair("hysteresis", "2")})
      if (!typed(name) && !to_.given(name))
        to_.give(name, name, std::string(text), flag_position("Megatron's default"));
  }

  std::vector<FileWord>& arguments_;
  Problems& problems_;
  const GetEnvironment& environment_;
  static constexpr const char* steps_of_batch = "step_batch_size_schedule";
  bool wrong_ramp_ = false;
  static constexpr std::int64_t most_processes = 4096;
  std::int64_t ranks_per_sample_ = 1;  ///< pipeline x tensor x context parallel: ranks with the same data
  std::int64_t cp_ = 1;
  Translator to_;
  MegatronArguments a_;
};

}  // namespace

bool is_megatron_style(const std::vector<FileWord>& arguments) {
  const auto has = [&](std::span<const std::string_view> names) {
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const auto& argument) { return is_among(names, argument); });
  };
  const auto of_megatron_alone = [](const FileWord& argument) {
    const std::string name = name_of(argument.text);
    return !name.empty() && !is_ours(name) && !is_among(shared_signs, argument) && find_megatron_key(name) != nullptr;
  };
  const bool beside_others = has(shared_signs) && std::any_of(arguments.begin(), arguments.end(), of_megatron_alone);
  return (has(signs) || beside_others) && !has(opposites);
}

Translation read_megatron_flags(std::vector<FileWord>& arguments, Problems& problems,
                                const GetEnvironment& environment) {
  return Reader(arguments, problems, environment).read();
}

std::optional<Translation> translate_megatron_flags(std::vector<FileWord>& arguments, Problems& problems,
                                                    const GetEnvironment& environment) {
  const auto file_notes = read_model_args(arguments, problems, environment);
  if (!file_notes && !is_megatron_style(arguments)) return std::nullopt;
  Translation translation = read_megatron_flags(arguments, problems, environment);
  if (file_notes) translation.notes.insert(translation.notes.begin(), file_notes->begin(), file_notes->end());
  return translation;
}

}  // namespace tessera::config
