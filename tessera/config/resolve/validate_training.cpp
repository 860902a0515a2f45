// Rules between the settings of the training loop: logging, evaluation, saving, optimization.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/config/core/run_schedule.h>
#include <tessera/config/resolve/validate_evaluations.h>
#include <tessera/config/resolve/validate_training.h>
#include <tessera/config/rules/block_routing.h>
#include <tessera/config/rules/named_parameters.h>
#include <tessera/config/rules/optimizer_states.h>
#include <tessera/config/rules/validate_compression.h>
#include <tessera/config/rules/validate_fill_in_middle.h>
#include <tessera/config/rules/validate_fp8.h>
#include <tessera/config/rules/validate_mup.h>
#include <tessera/config/rules/validate_preferences.h>
#include <tessera/config/rules/validate_quantized.h>
#include <tessera/config/rules/validate_xla.h>
#include <tessera/layout/batch/ramp.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

class TrainingRules : RuleChecks {
 public:
  TrainingRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    optimizer_ = read("optim_args", [&] { return optimizer_parameters(c_.optimization); });
    schedule();
    intervals();
    precision();
    batch();
    evaluation();
    best_metric();
    validate_evaluations(resolved_, problems_);
    validate_preferences(resolved_, problems_);
    validate_fill_in_middle(resolved_, problems_);
    validate_fp8(resolved_, problems_);
    validate_mup(resolved_, problems_);
    validate_xla(resolved_, problems_);
    validate_quantized(resolved_, problems_);
    validate_compression(resolved_, problems_);
    validate_block_routing(resolved_, problems_);
    saving();
  }

 private:
  bool evaluates() const { return c_.output.eval_strategy != Interval::no; }

  /// An interval may be 0 if its strategy needs no steps.
  void intervals() {
    const OutputConfig& o = c_.output;
    if (o.save_strategy == SaveStrategy::steps && o.save_steps == 0)
      problem({"save_steps", "save_strategy"}, said("save_steps"),
              " is 0: set the steps between two checkpoints, or use --save_strategy no");
    if (o.logging_strategy == Interval::steps && o.logging_steps == 0)
      problem({"logging_steps", "logging_strategy"}, said("logging_steps"),
              " is 0: set the steps between two lines of metrics, or use --logging_strategy no");
  }

  void schedule() {
    const OptimizationConfig& o = c_.optimization;
    if (o.nesterov && o.momentum == 0) problem({"nesterov", "momentum"}, "--nesterov needs --momentum above 0");
    const auto given = read("lr_scheduler_kwargs", [&] { return schedule_parameters(o); });
    const bool beyond_the_run = given && find_parameter(*given, "num_training_steps") != nullptr;
    if (o.max_steps > 0 && o.warmup_steps > o.max_steps && !beyond_the_run)
      problem({"warmup_steps", "max_steps"}, "--warmup_steps is ", o.warmup_steps, ", more than the ", o.max_steps,
              " steps of --max_steps");
  }

  void precision() {
    const OptimizationConfig& o = c_.optimization;
    if (o.bf16_full_eval && o.fp16_full_eval)
      problem({"bf16_full_eval", "fp16_full_eval"}, said("bf16_full_eval"), " and ", said("fp16_full_eval"),
              " exclude each other: use only one of them");
    if (c_.parallel.deterministic_reduce && !o.average_tokens_across_devices)
      problem({"average_tokens_across_devices", "deterministic_reduce"}, said("average_tokens_across_devices"),
              " contradicts ", said("deterministic_reduce"),
              ": the mean of the processes' means depends on their number");
    if (!has_eight_bit_states(o.optim)) return;
    if (o.bf16_optimizer_states)
      problem({"optim", "bf16_optimizer_states"}, said("optim"), " ", o.optim, " contradicts ",
              said("bf16_optimizer_states"), ": the first stores moments in 8 bits; remove one of them");
    if (c_.device == Device::cuda)
      problem({"optim", "device"}, said("optim"), " ", o.optim,
              " with --device cuda: 8-bit states are implemented only on the CPU; use --device cpu, or --optim ",
              o.optim == OptimizerKind::lion_8bit ? "lion" : "adamw", " --bf16_optimizer_states");
  }

  /// Reports a setting that is not supported when ranks share rows (pipelines included), or with a fixed order of
  /// micro-batches.
  void not_with(const char* setting, bool with_cuts, const char* why_cuts, bool with_fixed, const char* why_fixed) {
    const ParallelConfig& p = c_.parallel;
    if (!with_cuts && (ranks_per_sample(p) > 1 || p.ep_size > 1))
      problem({setting, "pp_size", "tp_size", "cp_size", "ep_size"}, said(setting), ": with pp_size ", p.pp_size,
              ", tp_size ", p.tp_size, ", cp_size ", p.cp_size, " and ep_size ", p.ep_size, " ", why_cuts);
    if (!with_fixed && p.deterministic_reduce)
      problem({setting, "deterministic_reduce"}, said(setting), " contradicts ", said("deterministic_reduce"), ": ",
              why_fixed);
  }

  void unequal_batches() {
    const OptimizationConfig& o = c_.optimization;
    const bool grows = !o.batch_size_schedule.empty(), by_tokens = o.tokens_per_batch > 0;
    constexpr const char* fixed = "the fixed order requires the same micro-batches with the same rows in every step";
    if (o.balance_batches) {
      not_with("balance_batches", false,
               "several processes work on the same rows and wait for each other in every layer, so a slow one cannot "
               "get fewer rows; remove it",
               false, fixed);
      if (!o.average_tokens_across_devices)
        problem({"balance_batches", "average_tokens_across_devices"}, said("balance_batches"), " contradicts ",
                said("average_tokens_across_devices"),
                ": the mean of the processes' means depends on which rows each process has");
      if (by_tokens)
        problem({"balance_batches", "tokens_per_batch"}, said("balance_batches"), " distributes rows, ",
                said("tokens_per_batch"), " tokens: use only one of them");
    }
    if (grows) {
      read("batch_size_schedule", [&] { return layout::parse_batch_ramp(o.batch_size_schedule); });
      if (c_.parallel.pp_size > 1 && is_schedule_file(c_.parallel.pipeline_schedule))
        problem({"batch_size_schedule", "pipeline_schedule", "pp_size"}, said("pipeline_schedule"), " ",
                c_.parallel.pipeline_schedule, " is a file with a fixed number of micro-batches, but the steps of ",
                said("batch_size_schedule"), " have different sizes: use a schedule by name, such as 1f1b");
      not_with("batch_size_schedule", true, "", false, fixed);
      if (by_tokens)
        problem({"batch_size_schedule", "tokens_per_batch"}, said("batch_size_schedule"), " counts rows, ",
                said("tokens_per_batch"), " tokens: use only one of them");
      if (c_.data.dataloader_drop_last)
        problem({"batch_size_schedule", "dataloader_drop_last"}, said("dataloader_drop_last"),
                " drops an incomplete last step, but ", said("batch_size_schedule"),
                " has steps of different sizes: remove one of them");
    }
    if (by_tokens) {
      if (c_.parallel.pp_size > 1)
        problem({"tokens_per_batch", "pp_size"}, said("tokens_per_batch"), ": the stages of a pipeline (pp_size ",
                c_.parallel.pp_size, ") need micro-batches of one shape; remove it");
      not_with("tokens_per_batch", true, "", false, fixed);
      if (c_.data.dataloader_drop_last)
        problem({"tokens_per_batch", "dataloader_drop_last"}, said("dataloader_drop_last"), " contradicts ",
                said("tokens_per_batch"), ": steps have no fixed number of rows, so none is incomplete");
      if (c_.data.streaming)
        problem({"tokens_per_batch", "streaming"}, said("tokens_per_batch"), " contradicts ", said("streaming"),
                ": the lengths of rows must be known before they are read");
      if (c_.output.ignore_data_skip)
        problem({"tokens_per_batch", "ignore_data_skip"}, said("ignore_data_skip"), " contradicts ",
                said("tokens_per_batch"), ": the rows of a step depend on all earlier steps");
      if (o.auto_find_batch_size)
        problem({"tokens_per_batch", "auto_find_batch_size"}, said("auto_find_batch_size"),
                " halves the rows per batch, but ", said("tokens_per_batch"), " counts tokens: lower it manually");
    }
    if (o.gradient_noise_scale)
      not_with("gradient_noise_scale", false,
               "a process has only parts of the gradients of its rows, so the norms of small batches are unknown "
               "before the reduction; measure it with plain data parallelism",
               false, "gradients are summed micro-batch by micro-batch; measure it without the fixed order");
    if (o.gradient_noise_scale && !o.average_tokens_across_devices)
      problem({"gradient_noise_scale", "average_tokens_across_devices"}, said("gradient_noise_scale"), " contradicts ",
              said("average_tokens_across_devices"), ": the step's gradient must be one mean over all rows");
  }

  void learning_rate_rule() {
    const OptimizationConfig& o = c_.optimization;
    const bool rule = o.learning_rate_rule != BatchRule::none;
    if (rule && o.learning_rate_batch_size == 0)
      problem({"learning_rate_rule", "learning_rate_batch_size"}, said("learning_rate_rule"),
              " needs --learning_rate_batch_size: the rows per step that --learning_rate was found with");
    if (!rule && o.learning_rate_batch_size > 0)
      problem({"learning_rate_rule", "learning_rate_batch_size"}, said("learning_rate_batch_size"),
              " needs --learning_rate_rule linear or square_root: the learning rate's dependence on the rows per step");
    if (rule && o.tokens_per_batch > 0)
      problem({"learning_rate_rule", "tokens_per_batch"}, said("learning_rate_rule"),
              " counts rows per step, but with ", said("tokens_per_batch"),
              " their number changes from step to step: use --learning_rate itself");
  }

  void decoupled_rates() {
    const OptimizationConfig& o = c_.optimization;
    using Type = ScheduleType;
    constexpr std::array own_rates = {Type::warmup_lr, Type::warmup_decay_lr, Type::warmup_cosine_lr, Type::one_cycle,
                                      Type::lr_range_test};
    if (o.mm_projector_lr >= 0 && o.learning_rate == 0)
      problem({"mm_projector_lr", "learning_rate"}, said("mm_projector_lr"), " with ", said("learning_rate"),
              " 0, whose schedule it follows: to train only the projector, use --tune_mm_mlp_adapter");
    if (o.mm_projector_lr >= 0 && std::find(own_rates.begin(), own_rates.end(), o.lr_scheduler_type) != own_rates.end())
      problem({"mm_projector_lr", "lr_scheduler_type"}, said("mm_projector_lr"),
              " is not supported by --lr_scheduler_type ", o.lr_scheduler_type,
              ", which sets one learning rate for all parameters: remove it, or use cosine");
    if (o.decoupled_lr < 0 && o.decoupled_min_lr >= 0)
      problem({"decoupled_min_lr", "decoupled_lr"}, said("decoupled_min_lr"),
              " needs --decoupled_lr, the peak of the same parameters");
    if (o.decoupled_lr < 0) return;
    if (std::find(own_rates.begin(), own_rates.end(), o.lr_scheduler_type) != own_rates.end())
      problem({"decoupled_lr", "lr_scheduler_type"}, said("decoupled_lr"), " is not supported by --lr_scheduler_type ",
              o.lr_scheduler_type,
              ", which sets one learning rate for all parameters: remove it, or use cosine or "
              "linear");
    else if (o.decoupled_min_lr >= 0 && least_rate_parameter(o.lr_scheduler_type).empty())
      problem({"decoupled_min_lr", "lr_scheduler_type"}, said("decoupled_min_lr"),
              " is not supported by --lr_scheduler_type ", o.lr_scheduler_type,
              ", which has no minimum rate: use cosine_with_min_lr or polynomial");
    else if (o.decoupled_min_lr > o.decoupled_lr)
      problem({"decoupled_min_lr", "decoupled_lr"}, said("decoupled_min_lr"), " is above ", said("decoupled_lr"), " ",
              o.decoupled_lr, ", the peak");
    const Value* relative = optimizer_ ? find_parameter(*optimizer_, "relative_step") : nullptr;
    if (o.optim == OptimizerKind::adafactor && relative != nullptr && relative->as_bool())
      problem(
          {"decoupled_lr", "optim_args"}, said("decoupled_lr"),
          " has no effect with adafactor's relative_step, which computes its own learning rates: remove one of them");
  }

  void batch() {
    unequal_batches();
    decoupled_rates();
    learning_rate_rule();
    if (!c_.optimization.auto_find_batch_size) return;
    if (c_.parallel.deterministic_reduce)
      problem({"auto_find_batch_size", "deterministic_reduce"}, said("auto_find_batch_size"), " contradicts ",
              said("deterministic_reduce"),
              ": the micro-batches determine the order of summation; set --per_device_train_batch_size manually");
    const ParallelConfig& p = c_.parallel;
    if (p.tp_size * p.cp_size * p.ep_size > 1)
      problem({"auto_find_batch_size", "tp_size", "cp_size", "ep_size"}, said("auto_find_batch_size"),
              ": with tp_size ", p.tp_size, ", cp_size ", p.cp_size, " and ep_size ", p.ep_size,
              " forward and backward are collective, and a process that runs out of memory would leave the others "
              "waiting; set --per_device_train_batch_size manually");
    const Strategy strategy = c_.sharding.strategy;
    const std::int64_t ranks = data_parallel_ranks(p, p.num_processes);
    if (ranks > 1 && row_of(strategy).shard_gradients)
      problem({"auto_find_batch_size", "strategy", "num_processes"}, said("auto_find_batch_size"),
              ": with the strategy ", strategy, " over ", ranks,
              " processes, forward and backward are collective, and a process that runs out of memory would leave the "
              "others waiting; use ddp "
              "or zero1, or set --per_device_train_batch_size manually");
  }

  void evaluation() {
    const OutputConfig& o = c_.output;
    const bool has_data = !c_.data.validation_file.empty() || c_.data.validation_split_percentage > 0;
    if (evaluates() && !has_data)
      problem({"eval_strategy", "validation_file", "validation_split_percentage"}, "--eval_strategy ", o.eval_strategy,
              " has no evaluation data: use --validation_file, or a --validation_split_percentage above 0");
    if (o.do_eval && !evaluates() && !has_data)
      problem({"do_eval", "validation_file", "validation_split_percentage"}, said("do_eval"),
              " has no evaluation data: use --validation_file, or a --validation_split_percentage above 0");
    if (o.eval_on_start && !evaluates() && !o.do_eval && c_.data.validation_file.empty())
      problem({"eval_on_start", "eval_strategy"},
              "--eval_on_start needs evaluation data: use --validation_file or an --eval_strategy");
  }

  void best_metric() {
    const OutputConfig& o = c_.output;
    static const std::vector<std::string> metrics = {"loss",     "eval_loss",     "perplexity", "eval_perplexity",
                                                     "accuracy", "eval_accuracy", "f1",         "eval_f1"};
    if (const std::string& metric = o.metric_for_best_model;
        !what_follows_evaluations(c_).empty() && !is_metric_of_evaluations(metric)) {
      const auto near = nearest(metric, metrics);
      problem({"metric_for_best_model"}, said("metric_for_best_model"), " is '", metric, "'",
              near ? concat("; did you mean ", *near, "?") : "",
              " (evaluations have loss and perplexity, for classifiers loss, accuracy and f1)");
    }
  }

  void saving() {
    const OutputConfig& o = c_.output;
    if (o.save_only_model && c_.parallel.max_restarts > 0)
      problem({"save_only_model", "max_restarts"}, said("save_only_model"), " contradicts ", said("max_restarts"), " ",
              c_.parallel.max_restarts, ": restarts need checkpoints with the optimizer's state");
  }

  std::optional<NamedParameters> optimizer_;  // empty: --optim_args is invalid
};

}  // namespace

std::string least_rate_parameter(ScheduleType type) {
  if (type == ScheduleType::polynomial) return "lr_end";
  const bool has_one = type == ScheduleType::cosine_with_min_lr || type == ScheduleType::cosine_warmup_with_min_lr;
  return has_one ? "min_lr" : "";
}

void validate_training(const Resolved& resolved, Problems& problems) { TrainingRules(resolved, problems).check(); }

namespace {

void unused_schedule(const Resolved& resolved, const Unused& unused) {
  const OptimizationConfig& o = resolved.values.optimization;
  using Type = ScheduleType;
  const Type type = o.lr_scheduler_type;
  const std::string why = type == Type::constant
                              ? "--lr_scheduler_type constant has no warm-up (constant_with_warmup has)"
                              : concat("--lr_scheduler_type ", type, " has no warm-up");
  if (type == Type::constant || type == Type::one_cycle || type == Type::lr_range_test ||
      type == Type::reduce_lr_on_plateau) {
    if (o.warmup_steps > 0) unused("warmup_steps", why);
    if (o.warmup_ratio > 0) unused("warmup_ratio", why);
  }
  if (type == Type::one_cycle || type == Type::lr_range_test)
    unused("learning_rate",
           concat("--lr_scheduler_type ", type, " has its own learning rates (--lr_scheduler_kwargs)"));
}

/// Settings for checkpoints and for steps that are not finite.
void unused_safety(const Resolved& resolved, const Unused& unused) {
  const OutputConfig& o = resolved.values.output;
  const bool lora = resolved.values.model.lora_r > 0;
  if (lora) unused("save_state_dict_type", "adapters are small and are written whole");
  if (o.save_state_dict_type == StateDictType::full) {
    if (o.async_save) unused("async_save", "training waits until --save_state_dict_type full is written");
    unused("async_save_when_busy", "training waits until --save_state_dict_type full is written");
  } else if (!o.async_save) {
    unused("async_save_when_busy", "without --async_save no checkpoint is due while another is being written");
  }
  if (o.save_strategy == SaveStrategy::no)
    for (const char* name : {"save_state_dict_type", "async_save", "async_save_when_busy"})
      unused(name, "--save_strategy is no");
  if (o.checkpoint_in_memory > 0 && resolved.values.parallel.max_restarts == 0)
    unused("checkpoint_in_memory", "jobs are not restarted (--max_restarts is 0)");
  if (o.nan_policy != NanPolicy::skip) unused("nan_skip_limit", concat("--nan_policy is ", o.nan_policy));
  if (resolved.values.optimization.fp16)
    for (const char* name : {"nan_policy", "nan_skip_limit"})
      unused(name, "--fp16 skips such steps by itself and lowers the loss scale (--min_loss_scale, --hysteresis)");
  if (resolved.values.parallel.num_processes == 1) unused("check_replicas_steps", "there is only one process");
}

void unused_intervals(const Resolved& resolved, const Unused& unused) {
  const OutputConfig& o = resolved.values.output;
  if (o.logging_strategy != Interval::steps &&
      (o.eval_strategy != Interval::steps || resolved.origin("eval_steps").is_flag()))
    unused("logging_steps", concat("--logging_strategy is ", o.logging_strategy));
  if (o.save_strategy != SaveStrategy::steps) unused("save_steps", concat("--save_strategy is ", o.save_strategy));
  if (o.save_strategy == SaveStrategy::no)
    for (const char* name : {"save_total_limit", "save_only_model"}) unused(name, "--save_strategy is no");
  if (o.eval_strategy == Interval::epoch) unused("eval_steps", "--eval_strategy is epoch");
  if (o.eval_strategy == Interval::no) {
    unused("eval_steps", "--eval_strategy is no, so nothing is evaluated: use --eval_strategy steps");
    unused("eval_delay", "--eval_strategy is no");
  }
  const bool best =
      o.load_best_model_at_end || o.save_strategy == SaveStrategy::best || !o.metric_for_best_model.empty();
  const bool followed =
      !what_follows_evaluations(resolved.values).empty() || is_metric_of_evaluations(o.metric_for_best_model);
  if (!followed)
    unused("metric_for_best_model", "no best model is requested (--load_best_model_at_end, --save_strategy best)");
  if (!best) unused("greater_is_better", "no best model is requested (--load_best_model_at_end, --save_strategy best)");
  if (o.eval_strategy == Interval::no && !o.do_eval && resolved.values.data.validation_file.empty())
    for (const char* name : {"metric_for_best_model", "bf16_full_eval", "fp16_full_eval"})
      if (followed || name != std::string_view("metric_for_best_model"))
        unused(name, "nothing is evaluated (--eval_strategy)");
  if (o.resume_from_checkpoint.empty()) unused("ignore_data_skip", "no run is resumed (--resume_from_checkpoint)");
}

}  // namespace

void unused_training(const Resolved& resolved, const Unused& unused) {
  const OptimizationConfig& o = resolved.values.optimization;
  unused_schedule(resolved, unused);
  unused_quantized(resolved, unused);
  unused_fill_in_middle(resolved, unused);
  unused_mup(resolved, unused);
  unused_xla(resolved, unused);
  if (resolved.values.model.lora_r > 0 && resolved.values.model.lora_modules_to_save.empty())
    for (const char* name : {"decoupled_lr", "decoupled_min_lr"})
      unused(name, "--lora_r trains adapters, not embeddings and the head (--lora_modules_to_save)");
  if (o.tokens_per_batch > 0) unused("per_device_train_batch_size", "--tokens_per_batch counts tokens");
  if (o.balance_batches && resolved.values.parallel.num_processes == 1 && !resolved.is_default("num_processes"))
    unused("balance_batches", "there is only one process");
  unused_intervals(resolved, unused);
  unused_safety(resolved, unused);
  static constexpr std::array dynamic = {"initial_scale_power", "loss_scale_window", "min_loss_scale", "hysteresis",
                                         "consecutive_hysteresis"};
  if (!o.fp16) unused("loss_scale", "--fp16 is not given");
  for (const char* name : dynamic) {
    if (!o.fp16)
      unused(name, "--fp16 is not given");
    else if (o.loss_scale > 0)
      unused(name, "--loss_scale is fixed");
  }
  if (resolved.values.parallel.num_processes == 1)
    for (const char* name : {"average_tokens_across_devices", "gradient_predivide_factor"})
      unused(name, "there is only one process");
  if (resolved.values.data.train_sampling_strategy == SamplingStrategy::sequential)
    unused("data_seed", "--train_sampling_strategy is sequential");
}

}  // namespace tessera::config
