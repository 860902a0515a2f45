#include <tessera/faces/trainer.h>

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/config/core/fields.h>
#include <tessera/data/dataset.h>
#include <tessera/faces/batch_plan.h>
#include <tessera/faces/folder.h>
#include <tessera/faces/gather.h>
#include <tessera/faces/model_features.h>
#include <tessera/faces/smoothed_loss.h>
#include <tessera/faces/trainer_settings.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/launch/cli/job_variables.h>
#include <tessera/train/core/guarded_update.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/core/random_key.h>
#include <tessera/train/core/resume.h>
#include <tessera/train/loop/determinism.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/log_format.h>
#include <tessera/train/reporting/window.h>

namespace tessera {
namespace {

config::Resolved resolve(std::vector<std::string> flags, const std::vector<std::string>& defaults) {
  const auto variables = launch::job_variables(launch::read_rank_environment(&flags));  // removes --local-rank
  config::Resolved given = config::resolve_flags(flags, variables);
  if (defaults.empty()) return given;
  for (const std::string& flag : defaults) {
    std::string name = flag.substr(0, flag.find('=')).substr(flag.starts_with("--") ? 2 : 0);
    std::replace(name.begin(), name.end(), '-', '_');
    if (config::find_field(name) == nullptr || given.is_default(name)) flags.push_back(flag);
  }
  return config::resolve_flags(flags, variables);
}

/// Prints {'loss': 0.5123, 'epoch': 1.0}, in transformers' format.
void print_line(const Metrics& metrics) {
  std::string line;
  for (const auto& [name, value] : metrics)
    line += concat(line.empty() ? "" : ", ", "'", name, "': ",
                   name == "loss" || name == "epoch" ? train::python_round(value, name == "loss" ? 4 : 2)
                                                     : train::python_repr(value, 6));
  std::printf("{%s}\n", line.c_str());
  std::fflush(stdout);
}

at::Tensor labels_of(const TrainerOptions& options, const TensorBatch& batch) {
  return options.labels ? options.labels(batch) : batch.empty() ? at::Tensor() : batch.back();
}

/// By default only CUDA uses all devices of a single process.
std::optional<DataParallelOptions> replicas_of(const TrainerOptions& options, const comm::World& ranks) {
  if (ranks.size() > 1) {
    if (options.data_parallel)
      throw InputError(
          "Trainer: data_parallel is for one process with several devices; this job has several processes, which "
          "divide the batch themselves");
    return std::nullopt;
  }
  if (options.data_parallel) return options.data_parallel;
  if (!ranks.device().is_cuda() || at::detail::getCUDAHooks().deviceCount() < 2) return std::nullopt;
  DataParallelOptions all;
  for (int device = 0; device < at::detail::getCUDAHooks().deviceCount(); ++device)
    all.devices.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
  return all;
}

}  // namespace

TrainingArguments::TrainingArguments(std::vector<std::string> flags, const std::vector<std::string>& defaults)
    : config::Resolved(resolve(std::move(flags), defaults)) {
  comm::load_device(values.device);  // before the model is created: LibTorch checks only once whether CUDA exists
}

Trainer::Trainer(TrainerOptions options) : options_(std::move(options)) {
  options_.arguments.values = train::with_full_determinism(std::move(options_.arguments.values));
  const RunConfig& config = options_.arguments.values;
  faces::check_trainer_settings(config);
  if (!options_.model) throw InputError("Trainer: TrainerOptions::model is not set");
  if (!options_.loss)
    throw InputError(
        "Trainer: TrainerOptions::loss is not set: it must be a function of the module and a batch that returns its "
        "mean loss");
  if (config.optimization.label_smoothing_factor > 0 && !options_.outputs)
    throw InputError(
        "Trainer: --label_smoothing_factor needs TrainerOptions::outputs: a function of the module and a batch that "
        "returns the scores of the classes");
  if (options_.arguments.origin("average_tokens_across_devices").is_given() && !counts_items())
    throw InputError(
        "Trainer: --average_tokens_across_devices needs TrainerOptions::loss_count, the number of items over which the "
        "loss of a batch is a mean, or TrainerOptions::labels: without them every micro-batch has the same weight");
  faces::TrainingRanks groups = faces::make_training_ranks(config, options_.tp_plan);
  const comm::World& ranks = world();
  train::set_threads(config.parallel.threads_per_process, ranks.local_size());
  state_.is_world_process_zero = ranks.rank() == 0;
  if (state_.is_world_process_zero) {
    for (const std::string& note : options_.arguments.notes) log::warning(note);
    if (const auto names = faces::without_effect_on_trainer(options_.arguments); !names.empty())
      log::warning(join(names), names.size() == 1 ? " has" : " have",
                   " no effect on tessera::Trainer, whose model, data and loss are the program's");
  }
  const train::MakeUpdate update =
      options_.optimizer != nullptr
          ? train::torch_update(*options_.optimizer)
          : train::configured_update(config.optimization, train::decay_matrices(config.optimization.weight_decay));
  const auto replicas = replicas_of(options_, ranks);
  if (replicas) options_.model->to(ranks.device());
  features_ = std::make_unique<faces::ModelFeatures>(options_.model, options_.arguments, ranks);
  if (replicas && !features_->list().empty())
    throw InputError(
        "Trainer: --fp8_format, --compression_training, --progressive_layer_drop and --data_efficiency count steps and "
        "maximum values of one model, but data_parallel makes several replicas of it: start a process for each device "
        "(`tessera launch`)");
  training_ = std::make_unique<faces::Training>(options_.model, config, config.optimization.gradient_accumulation_steps,
                                                update, std::move(groups), features_->hosts());
  if (!replicas) return;
  try {
    data_parallel_.emplace(options_.model, *replicas);
  } catch (const InputError& error) {
    if (options_.data_parallel) throw;
    throw InputError(concat("Trainer: this process sees ", replicas->devices.size(), " GPUs and uses all of them. ",
                            error.what(),
                            " (TrainerOptions::data_parallel); or start a process for each GPU (`tessera "
                            "launch --num_processes ",
                            replicas->devices.size(), "`), or let it see one (CUDA_VISIBLE_DEVICES=0)"));
  }
}

bool Trainer::is_fsdp_enabled() const {
  const ShardingConfig& sharding = options_.arguments.values.sharding;
  return !is_deepspeed_enabled() && (!sharding.fsdp.empty() || row_of(sharding.strategy).shard_parameters);
}

bool Trainer::is_deepspeed_enabled() const {
  return !options_.arguments.values.files.deepspeed.empty() || options_.arguments.values.sharding.zero_stage >= 0;
}

void Trainer::set_state_dict_type(const std::string& type) {
  if (const auto wrong = config::find_field("save_state_dict_type")->set(options_.arguments.values, type))
    throw InputError(
        concat("set_state_dict_type: the type ", *wrong, ", or FULL_STATE_DICT, SHARDED_STATE_DICT, LOCAL_STATE_DICT"));
  options_.arguments.origins["save_state_dict_type"] = config::Origin::program("set_state_dict_type()");
}

TensorBatch Trainer::read(const RowSource& source, const std::vector<std::int64_t>& rows) const {
  TensorBatch batch = source.read(rows);
  for (at::Tensor& tensor : batch) tensor = tensor.to(training_->group().device());
  return batch;
}

at::Tensor Trainer::mean_loss(torch::nn::Module& module, const TensorBatch& batch) const {
  const double smoothing = options_.arguments.values.optimization.label_smoothing_factor;
  if (smoothing == 0) return options_.loss(module, batch);
  return faces::smoothed_loss(faces::Training::widen(options_.outputs(module, batch)), labels_of(options_, batch),
                              smoothing);
}

bool Trainer::counts_items() const {
  return options_.loss_count || options_.labels || options_.arguments.values.optimization.label_smoothing_factor > 0;
}

std::int64_t Trainer::items_of(const TensorBatch& batch) const {
  if (!options_.loss_count) return labels_of(options_, batch).ne(-100).sum().item<std::int64_t>();
  const std::int64_t items = options_.loss_count(batch);
  if (items < 0)
    throw InputError(concat("Trainer: TrainerOptions::loss_count returned ", items, ", a negative number"));
  return items;
}

/// The mean of the batch or, if items are counted, their sum; without items the loss is 0, regardless of their mean.
/// Under DataParallel each replica has a loss, and without counts they are averaged, as in transformers.
at::Tensor Trainer::loss_of_batch(const TensorBatch& batch) {
  const nn::Autocast precision = training_->autocast();
  const auto loss = [&](torch::nn::Module& module, TensorBatch& part) {
    const at::Tensor mean = mean_loss(module, part);
    if (!counts_items()) return mean.reshape({});
    const std::int64_t items = items_of(part);
    const at::Tensor wide = faces::Training::widen(mean).reshape({});
    return items > 0 ? wide * static_cast<double>(items) : wide.nan_to_num() * 0;
  };
  if (data_parallel_) {
    const at::Tensor losses = data_parallel_->call(loss, batch);
    return counts_items() ? losses.sum() : losses.mean();
  }
  TensorBatch whole = batch;
  return loss(*options_.model, whole);
}

/// State of train() while it runs.
struct Trainer::Course {
  std::optional<checkpoint::RunState> from;  ///< the state it resumes from; empty: starts at step 0
  train::RunPlan plan;
  data::Sampler sampler;
  train::GuardedUpdate update;
  double loss_sum = 0;           ///< sum over all steps of this call
  double logged_sum = 0;         ///< sum over the steps since the last log line
  std::int64_t logged_step = 0;  ///< the step of that line
  train::GuardedUpdate::Outcome last = {};
};

/// Resumes if requested, and plans the steps.
Trainer::Course Trainer::begin_course(const RowSource& rows) {
  RunConfig config = options_.arguments.values;
  config.optimization.per_device_train_batch_size *= n_gpu();
  if (checkpoints_) checkpoints_->finish();  // an exception may have ended an earlier call
  check_evaluations();
  const std::string folder =
      train::checkpoint_to_resume(config.output, training_->all(), {.why_not = faces::why_not_resumable});
  checkpoint::RunState from;
  comm::run_on_all_ranks(training_->all(), [&] {
    if (!folder.empty()) from = checkpoint::read_run_state(folder);
  });
  const train::RunPlan plan = train::make_run_plan(config, training_->group().size(), rows.rows,
                                                   options_.eval_dataset.has_value(), {from.step, from.samples});
  training_->set_schedule(
      train::make_schedule(train::with_learning_rate_rule(config.optimization, plan.rows_per_step()), plan));
  if (!folder.empty()) faces::load_training({training_.get()}, folder, true, true, /*verified=*/true);
  checkpoints_.emplace(training_->all(), options_.arguments.values.output, &from,
                       [this](const train::SaveOutcome& outcome) { saved(outcome); });
  note_best();
  state_.global_step = from.step;
  state_.max_steps = plan.total_steps;
  state_.num_train_epochs = plan.num_train_epochs;
  control_ = {};
  return {.from = folder.empty() ? std::nullopt : std::optional(from),
          .plan = plan,
          .sampler = {config.data.train_sampling_strategy == SamplingStrategy::sequential ? SamplingStrategy::sequential
                                                                                          : SamplingStrategy::random,
                      rows.rows, train::sampling_seed(config)},
          .update = {*training_,
                     training_->all(),
                     options_.arguments.values,
                     {.before_failing = [this] { checkpoints_->finish(); }}},
          .logged_step = from.step};
}

Trainer::~Trainer() = default;

TrainOutput Trainer::train() {
  if (!options_.train_dataset) throw InputError("Trainer: TrainerOptions::train_dataset is not set");
  Course course = begin_course(*options_.train_dataset);
  const train::RunPlan& plan = course.plan;
  const std::int64_t begin_ns = monotonic_ns(), first_step = state_.global_step;
  for (const std::string& note : features_->begin(*training_, plan, course.sampler, course.from))
    if (state_.is_world_process_zero) log::info(note);
  options_.model->train();
  training_->zero_grad();
  call(&TrainerCallback::on_train_begin);
  if (options_.arguments.values.output.eval_on_start && options_.eval_dataset) evaluate();
  while (state_.global_step < plan.total_steps && !control_.should_training_stop) {
    take_step(course);
    after_step(course);
  }
  checkpoints_->close();
  if (const std::string best = checkpoints_->best().checkpoint_to_load(training_->all().rank()); !best.empty())
    faces::load_training({training_.get()}, best, /*with_optimizer=*/false, /*with_random=*/false);
  call(&TrainerCallback::on_train_end);

  const double seconds = seconds_since(begin_ns);
  const double steps = static_cast<double>(state_.global_step - first_step);
  TrainOutput output{state_.global_step, steps > 0 ? course.loss_sum / steps : 0, {}};
  output.metrics = {{"train_runtime", seconds},
                    {"train_samples_per_second",
                     static_cast<double>(plan.samples(state_.global_step) - plan.samples(first_step)) / seconds},
                    {"train_steps_per_second", steps / seconds},
                    {"train_loss", output.training_loss}};
  log(output.metrics);
  return output;
}

void Trainer::take_step(Course& course) {
  if (checkpoints_->busy() && !comm::any_rank(training_->all(), !checkpoints_->ended())) checkpoints_->advance();
  call(&TrainerCallback::on_step_begin);
  double loss = train_step(course.sampler, course.plan);
  if (options_.arguments.values.output.logging_nan_inf_filter)
    loss = train::finite_or_mean(loss, course.logged_sum,
                                 static_cast<std::size_t>(state_.global_step - course.logged_step));
  course.loss_sum += loss;
  course.logged_sum += loss;
  course.last = course.update.finish_step(state_.global_step + 1);
  features_->list().each(&train::RunFeature::after_step,
                         train::StepEnd{state_.global_step + 1, course.last.grad_norm, course.last.taken});
  training_->zero_grad();
  state_.epoch = course.plan.epoch(++state_.global_step);
  call(&TrainerCallback::on_step_end);
  if (course.plan.ends_epoch(state_.global_step)) call(&TrainerCallback::on_epoch_end);
}

/// Writes the log line, the evaluation and the checkpoint if the plan or a callback requests them.
void Trainer::after_step(Course& course) {
  const train::RunPlan& plan = course.plan;
  const std::int64_t step = state_.global_step;
  const TrainerControl asked = std::exchange(control_, {.should_training_stop = control_.should_training_stop});
  if (plan.logs_after(step) || asked.should_log) {
    log({{"loss", course.logged_sum / static_cast<double>(step - course.logged_step)},
         {"grad_norm", course.last.grad_norm},
         {"learning_rate", course.last.learning_rate}});
    course.logged_sum = 0;
    course.logged_step = step;
  }
  const bool evaluates = options_.eval_dataset && (plan.evaluates_after(step) || asked.should_evaluate);
  const bool is_best = evaluates && evaluate_step();
  if (plan.saves_after(step) || asked.should_save ||
      (is_best && options_.arguments.values.output.save_strategy == SaveStrategy::best))
    save(plan);
}

/// A micro-batch of the next step; it does not count if `rank` has no row of it (in the last step of an epoch), or no
/// item.
Trainer::Micro Trainer::read_micro(const data::Sampler& sampler, const train::RunPlan& plan, int rank,
                                   std::int64_t micro) const {
  const std::int64_t step = state_.global_step;
  const layout::RowRange range = plan.rows_of(step, micro, rank, plan.equal_shares(step));
  if (range.count == 0) return {.batch = {}, .counts = false};
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < range.count; ++i) rows.push_back(sampler(range.begin + i));
  Micro made{.batch = read(*options_.train_dataset, rows), .first_row = range.begin};
  made.counts = !counts_items() || items_of(made.batch) > 0;
  return made;
}

/// The step's first micro-batch that counts. A rank whose own does not count computes with these rows: a mean over no
/// items is 0 / 0, so its gradients would be NaN, regardless of the factor.
Trainer::Micro Trainer::stand_in(const data::Sampler& sampler, const train::RunPlan& plan) const {
  for (std::int64_t micro = 0; micro < plan.micro_batches(state_.global_step); ++micro)
    for (int rank = 0; rank < training_->group().size(); ++rank)
      if (Micro made = read_micro(sampler, plan, rank, micro); made.counts) {
        made.counts = false;
        return made;
      }
  Micro first = read_micro(sampler, plan, 0, 0);
  first.counts = false;
  return first;
}

/// Computes the gradients of a step; returns its mean loss: over items if they are counted, otherwise over the
/// micro-batches of all ranks.
double Trainer::train_step(const data::Sampler& sampler, const train::RunPlan& plan) {
  const comm::Group& group = training_->group();
  const auto doubles = at::TensorOptions().dtype(at::kDouble).device(group.device());
  const std::int64_t step = state_.global_step, micro_batches = plan.micro_batches(step);
  const auto read_next = [&](std::int64_t micro) {
    Micro own = read_micro(sampler, plan, group.rank(), micro);
    return own.counts ? std::move(own) : stand_in(sampler, plan);
  };
  // backward() divides by the micro-batches of a whole step and by the ranks. `weight` turns that into a division by
  // the step's items if batches have sums, and otherwise by the micro-batches that have rows.
  std::vector<Micro> counted;
  double weight = static_cast<double>(plan.accumulation * group.size());
  if (counts_items()) {
    std::vector<double> items = {0};
    for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
      counted.push_back(read_next(micro));
      if (counted.back().counts) items.front() += static_cast<double>(items_of(counted.back().batch));
    }
    const bool across = training_->config().optimization.average_tokens_across_devices;
    if (across) comm::all_reduce_numbers(group, items);
    const std::int64_t means = across ? 1 : plan.ranks_with_rows(step);  // number of per-rank means to average
    weight /= static_cast<double>(means) * std::max(items.front(), 1.0);
  } else {
    weight /= static_cast<double>(plan.micro_batches_with_rows(step));
  }
  features_->list().each(&train::RunFeature::begin_step,
                         train::StepStart{step, training_->loss_factor(), training_->loss_factor()});
  at::Tensor sum = at::zeros({1}, doubles);
  for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
    const Micro read = counted.empty() ? read_next(micro) : std::move(counted[static_cast<std::size_t>(micro)]);
    train::key_random_numbers(group.device(), static_cast<std::uint64_t>(training_->config().optimization.seed), step,
                              read.first_row);
    training_->expect_step(micro + 1 == micro_batches);
    features_->begin_micro_batch(read.first_row);
    at::Tensor loss = loss_of_batch(read.batch);
    if (!read.counts)
      loss = loss.nan_to_num() * 0;
    else if (weight != 1)
      loss = loss * weight;
    training_->backward(loss);
    features_->list().each_within_step(&train::MicroBatchFeature::after_backward);
    sum += loss.detach().to(at::kDouble).reshape({1});
  }
  group.all_reduce(sum, comm::Reduction::mean).wait();
  return sum.item<double>() / static_cast<double>(plan.accumulation);
}

/// Batches are distributed round-robin over the ranks; a rank without a batch in the last round still computes (parts
/// of the model may be on other ranks), but its result does not count.
Trainer::Evaluated Trainer::run_over(const RowSource& source, bool with_outputs) {
  if (source.rows < 1) throw InputError("Trainer: there are no rows to evaluate");
  if (with_outputs && !options_.outputs)
    throw InputError(
        "Trainer: TrainerOptions::outputs is not set: it must be a function of the module and a batch that returns "
        "[rows, ...]");
  const at::NoGradGuard no_grad;
  const comm::Group& group = training_->group();
  const bool was_training = options_.model->is_training();
  options_.model->eval();
  const faces::BatchPlan plan{.rows = source.rows,
                              .batch_size = options_.arguments.values.optimization.per_device_eval_batch_size,
                              .ranks = group.size()};
  std::vector<double> sum = {0};
  std::vector<at::Tensor> outputs;
  for (std::int64_t i = 0; i < plan.batches(group.rank()); ++i) {
    // The rank's own rows come first. The loss covers only them; outputs cover all rows and are truncated at the end.
    const std::vector<std::int64_t> positions = plan.positions(group.rank(), i);
    const std::int64_t first = (i * group.size() + group.rank()) * plan.batch_size;
    const std::int64_t own = std::clamp<std::int64_t>(source.rows - first, 0, plan.batch_size);
    const TensorBatch batch = read(source, {positions.begin(), positions.begin() + (own > 0 ? own : 1)});
    const nn::Autocast precision = training_->evaluation_autocast();
    sum.front() += mean_loss(*options_.model, batch).item<double>() * static_cast<double>(own);
    if (with_outputs) {
      const at::Tensor rows =
          faces::gather_rows(group, faces::Training::widen(options_.outputs(*options_.model, batch)).narrow(0, 0, own));
      outputs.push_back(rows);
    }
  }
  options_.model->train(was_training);
  comm::all_reduce_numbers(group, sum);
  return {sum.front() / static_cast<double>(source.rows), with_outputs ? at::cat(outputs) : at::Tensor()};
}

Metrics Trainer::evaluate(const RowSource& rows, const std::string& prefix, at::Tensor* outputs) {
  const std::int64_t begin_ns = monotonic_ns();
  const bool with_outputs = outputs != nullptr || options_.compute_metrics;
  const Evaluated evaluated = run_over(rows, with_outputs);
  if (outputs != nullptr) *outputs = evaluated.outputs;
  Metrics metrics{{prefix + "loss", evaluated.loss}};
  if (options_.compute_metrics) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(rows.rows));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    for (const auto& [name, value] : options_.compute_metrics(evaluated.outputs, read(rows, all)))
      metrics[name.starts_with(prefix) ? name : prefix + name] = value;
  }
  const double seconds = seconds_since(begin_ns);
  metrics[prefix + "runtime"] = seconds;
  metrics[prefix + "samples_per_second"] = static_cast<double>(rows.rows) / seconds;
  return metrics;
}

Metrics Trainer::evaluate(const std::optional<RowSource>& rows) {
  if (!rows && !options_.eval_dataset)
    throw InputError("Trainer: evaluate() needs TrainerOptions::eval_dataset, or rows");
  Metrics metrics = evaluate(rows ? *rows : *options_.eval_dataset, "eval_", nullptr);
  log(metrics);
  metrics["epoch"] = state_.epoch;
  call(&TrainerCallback::on_evaluate, metrics);
  return metrics;
}

/// Evaluates during train(); the schedule may follow the result. Returns true if it is the best one so far.
bool Trainer::evaluate_step() {
  const Metrics metrics = evaluate();
  if (!training_->follows_evaluations() && !checkpoints_->best().wanted()) return false;
  const std::string& given = options_.arguments.values.output.metric_for_best_model;
  const std::string name = given.empty() ? "eval_loss" : given.starts_with("eval_") ? given : "eval_" + given;
  const auto found = metrics.find(name);
  if (found == metrics.end()) {
    std::vector<std::string> names;
    for (const auto& [metric, value] : metrics)
      if (metric.starts_with("eval_")) names.push_back(metric);
    throw InputError(concat("Trainer: --metric_for_best_model ", given, ": the evaluation has no ", name, ", only ",
                            join(names), ": TrainerOptions::compute_metrics must return it"));
  }
  // compute_metrics runs on every rank: its consequences must be the same on all
  const at::Tensor value =
      at::full({1}, found->second, at::TensorOptions().dtype(at::kDouble).device(training_->group().device()));
  training_->all().broadcast(value, 0).wait();
  training_->evaluated(value.item<double>());
  const bool is_best = checkpoints_->best().update(value.item<double>(), state_.global_step);
  note_best();
  return is_best;
}

PredictionOutput Trainer::predict(const RowSource& rows) {
  PredictionOutput output;
  output.metrics = evaluate(rows, "test_", &output.predictions);
  return output;
}

void Trainer::log(Metrics metrics) {
  metrics["epoch"] = state_.epoch;
  Value entry = Value::make_object();
  for (const auto& [name, value] : metrics) entry.set(name, Value::of(value));
  entry.set("step", Value::of(state_.global_step));
  state_.log_history.push_back(std::move(entry));
  if (state_.is_world_process_zero && !options_.arguments.values.output.disable_tqdm) print_line(metrics);
  call(&TrainerCallback::on_log, metrics);
}

}  // namespace tessera
