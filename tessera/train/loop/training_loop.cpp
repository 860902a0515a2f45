#include <tessera/train/loop/training_loop.h>

#include <utility>

#include <tessera/base/clock.h>
#include <tessera/base/file.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/long_phase.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/vision/compose.h>
#include <tessera/train/loop/restart.h>
#include <tessera/train/loop/sharding.h>
#include <tessera/train/reporting/model_card.h>

namespace tessera::train {

TrainingLoop::TrainingLoop(Setup setup, const Value& configuration, std::int64_t process_bytes)
    : setup_(std::move(setup)),
      configuration_(configuration),
      world_(world()),
      model_loss_(setup_),
      rows_(setup_, objective()),
      numbers_(setup_, world_, model_, process_bytes),
      replicas_(setup_, world_, model_, clock_),
      checkpoints_(world_.group(), setup_.config.output, setup_.resume ? &*setup_.resume : nullptr,
                   [this](const SaveOutcome& outcome) { saved(outcome); }),
      journal_(setup_, world_),
      step_(setup_.plan.resumed_step),
      update_(model_.core, world_.group(), setup_.config,
              {.find_source = [this] { return passes_->first_not_finite(); },
               // an earlier step's checkpoint is valid and is still completed
               .before_failing = [this] { checkpoints_.finish(); },
               .before_update = [this] { clock_.enter(Phase::optimizer); },
               .outcome_at_once = setup_.features.reads_outcome()}) {
  if (setup_.resume) setup_.resume->log_history = {};  // the journal holds the history from here on
  run_on_all_ranks(world_.group(), [&] { divide_model(); });
  run_on_all_ranks(world_.group(), [&] { make_optimizer(); });
}

/// Collective; wrong settings throw on every rank.
void TrainingLoop::divide_model() {
  parallelize(setup_, model_);
  const PassParts parts = {setup_, world_, model_, objective(), clock_, numbers_.window()};
  if (setup_.xla) compiled_.emplace(parts);
  passes_ = compiled_ ? compiled_->passes() : make_passes(parts);
  context_.emplace(RunContext{.config = setup_.config,
                              .groups = setup_.groups,
                              .world = world_,
                              .plan = setup_.plan,
                              .datasets = setup_.datasets,
                              .sampler = rows_.sampler(),
                              .model = setup_.model,
                              .lora = setup_.lora,
                              .resumed = setup_.resume.has_value(),
                              .sharded = model_.sharded(),
                              .part_runner = models::part_runner_of(model_.checkpointing)});
  setup_.features.each(&RunFeature::divided, *context_);
}

void TrainingLoop::make_optimizer() {
  const OptimizationConfig config = with_learning_rate_rule(setup_.config.optimization, plan().rows_per_step());
  const auto* const model = setup_.model.get();
  const auto decay = [model, rate = config.weight_decay](const std::string& name, const std::vector<std::int64_t>&) {
    return model->is_norm_or_bias(name) ? 0.0 : rate;
  };
  const ParameterKinds kinds = {[model](const std::string& name) { return model->is_embedding(name); },
                                [model](const std::string& name) { return model->is_embedding(name, true); },
                                setup_.lora ? 1 : model->spec().mup.value_or(architectures::Mup{}).width,
                                models::is_of_projector};
  StepCore& core = model_.core;
  std::unique_ptr<Update> update = configured_update(config, decay, kinds)(*setup_.model, model_.sharded());
  core.set_update(compiled_ ? compiled_->update(std::move(update)) : std::move(update));
  core.set_schedule(make_schedule(config, plan()), make_schedule_of_embeddings(config, plan()));
  if (config.learning_rate_rule != BatchRule::none && !plan().segments.empty())
    core.scale_rates([this, rule = config.learning_rate_rule](std::int64_t step) {
      return batch_factor(rule, plan().rows_of_step(std::max(step, plan().resumed_step)), plan().rows_per_step());
    });
  if (!setup_.resume) return;
  core.restore(setup_.resume->models[0], setup_.resume_folder, setup_.resume_sums);
  setup_.resume_sums = nullptr;
}

/// Writes the first output of the run.
void TrainingLoop::open_output() {
  run_on_all_ranks(world_.group(), [&] {
    if (world_.rank() != 0) return;
    output_.emplace(setup_);
    journal_.open(*output_, configuration_);
  });
  open_checkpoints();
}

void TrainingLoop::describe_start() {
  std::vector<std::string> notes = train::describe_start(setup_, world_);
  for (std::string& line :
       describe_sharding(setup_.config, *setup_.model, model_.sharded(), setup_.groups.engine.rank()))
    notes.push_back(std::move(line));
  if (setup_.groups.expert_ranks() > 1)
    notes.push_back(concat("experts: ", layout::describe(setup_.groups.mesh, layout::View::expert)));
  if (setup_.groups.cuts())
    notes.push_back(concat("mesh: ", layout::describe(setup_.groups.mesh),
                           setup_.config.parallel.sequence_parallel ? ", sequence parallel" : ""));
  if (std::string line = passes_->describe(); !line.empty()) notes.push_back(std::move(line));
  if (!model_.core.moves_betas())
    notes.push_back(concat("one_cycle: --optim ", setup_.config.optimization.optim,
                           " has no betas, so only the learning rate is cycled"));
  for (const std::string& line : notes) journal_.note(line);
}

ExitCode TrainingLoop::run() {
  open_output();
  describe_start();
  numbers_.predict_memory(plan().batch_size * objective().rows_of_sample() * setup_.datasets.train->max_length());
  std::vector<std::string> notes;
  setup_.features.each(&RunFeature::start, notes);
  for (const std::string& line : notes) journal_.note(line);
  numbers_.measure_yardsticks(output_.has_value());
  if (setup_.config.output.profile) clock_.start_trace(world_.group(), world_.local_size() == world_.size());
  numbers_.start();
  setup_.model->train();

  // Without validation data, an interrupted evaluation is not made up for: after the next step it would be too late.
  evaluation_due_ = setup_.datasets.validation && setup_.resume && setup_.resume->evaluation_due;
  const bool due = evaluation_due_;
  if (setup_.datasets.validation && (due || setup_.config.output.eval_on_start)) {
    bool best = false;
    if (const StopRequest stop = evaluate(best); stop != StopRequest::none) return finish(stop);
    if (due) save_if_due(best);
  }
  while (step_ < plan().total_steps) {
    const std::int64_t begin_ns = monotonic_ns();
    const double begin_cpu = process_cpu_seconds();
    clock_.enter(Phase::data);
    const std::vector<data::Batch> batches = rows_.read(step_);
    const Agreement agreed = agree_on_step(batches);
    if (agreed.save_ended) checkpoints_.advance();
    if (agreed.stop != StopRequest::none) return finish(agreed.stop);
    train_one_step(batches, agreed, begin_ns, begin_cpu);
    if (plan().logs_after(step_)) log();
    bool best = false;
    if (plan().evaluates_after(step_))
      if (const StopRequest stop = evaluate(best); stop != StopRequest::none) return finish(stop);
    save_if_due(best);
  }
  return finish(StopRequest::none);
}

void TrainingLoop::train_one_step(const std::vector<data::Batch>& batches, const Agreement& agreed,
                                  std::int64_t begin_ns, double begin_cpu) {
  numbers_.window().begin_step(agreed.counts);
  const PhaseSeconds before = clock_.booked();
  compute_gradients(batches, agreed.counts);
  clock_.enter(Phase::optimizer, "clip");
  const auto spent = [&](Phase phase) { return at(clock_.booked(), phase) - at(before, phase); };
  rows_.shares().computed(spent(Phase::forward) + spent(Phase::backward));
  last_ = update_.finish_step(step_ + 1);
  ++step_;
  // Values reported for a step must include the device's work; otherwise the wait would be charged to the next step.
  if (plan().logs_after(step_) || plan().evaluates_after(step_) || plan().saves_after(step_)) update_.settle();
  setup_.features.each(&RunFeature::after_step, StepEnd{step_, last_.grad_norm, last_.taken});
  clock_.enter(Phase::other);
  replicas_.after_step(step_);
  const double seconds = static_cast<double>(monotonic_ns() - begin_ns) * 1e-9;
  numbers_.end_step(step_, seconds, process_cpu_seconds() - begin_cpu);
  const auto tokens = static_cast<double>(numbers_.window().step_tokens());
  comm::heartbeat().set_step(
      {step_, plan().total_steps, static_cast<std::int64_t>(seconds * 1e9), tokens / seconds, numbers_.rough_loss()});
  journal_.step([&] {
    return ProgressState{step_,
                         plan().total_steps,
                         numbers_.rough_loss(),
                         last_.learning_rate,
                         tokens / numbers_.smoothed_step_seconds(),
                         peak_resident_bytes(),
                         numbers_.seconds_left(step_)};
  });
}

void TrainingLoop::log(bool tell) {
  update_.settle();
  const std::int64_t steps = numbers_.window().steps();
  const PhaseSeconds phases = clock_.take();
  LogSums sums;
  setup_.features.each(&RunFeature::log, sums);
  StepMetrics metrics = numbers_.close_window(phases, sums.own());
  sums.tell(metrics);
  const std::int64_t rows = plan().rows_of_step(step_ - 1);
  if (plan().token_steps || !plan().segments.empty() || rows != plan().rows_per_step()) metrics.rows = rows;
  metrics.step = step_;
  const optim::LossScale* const scale = model_.core.loss_scale();
  if (scale != nullptr) metrics.loss_scale = scale->scale();
  if (scale != nullptr || setup_.config.output.nan_policy == NanPolicy::skip)
    metrics.skipped_steps = update_.take_newly_skipped();
  metrics.grad_norm = update_.grad_norm();
  metrics.learning_rate = last_.learning_rate;
  metrics.epoch = plan().epoch(step_);
  metrics.flops_utilization = numbers_.flops_utilization(metrics.tokens_per_second);
  metrics.num_input_tokens_seen = numbers_.input_tokens_seen();
  numbers_.logged(metrics, steps);
  if (tell) {
    const comm::LongPhase writing("metrics");
    journal_.logged(metrics, plan().total_steps, numbers_.seconds_left(step_));
  }
  clock_.collect();
}

/// Call before reading the model's weights or the optimizer's states: they may have been trained on other devices.
void TrainingLoop::bring_back() {
  if (compiled_) compiled_->bring_back();
}

/// Sets `best` if no evaluation was better so far. If a request is returned, it interrupted the evaluation, which might
/// have taken longer than the requester waits.
StopRequest TrainingLoop::evaluate(bool& best) {
  update_.settle();
  if (!passes_->losses()) bring_back();  // otherwise the devices evaluate
  const comm::LifeState evaluating(launch::RankState::evaluating);
  clock_.enter(Phase::other, "evaluate");
  StopRequest stop = StopRequest::none;
  const auto goes_on = [&](std::int64_t done, std::int64_t batches) {
    journal_.evaluating(done, batches);
    stop = stop_of_all();
    return stop == StopRequest::none;
  };
  std::optional<EvalMetrics> evaluated = objective().evaluate({divided(), passes_->losses(), goes_on});
  journal_.evaluation_ends();
  const bool counts = step_ > plan().resumed_step || evaluation_due_;  // the schedule has not seen this evaluation yet
  evaluation_due_ = !evaluated;
  if (!evaluated) {
    journal_.note(concat("step ", step_, ": the evaluation is interrupted because the run is stopping",
                         stop == StopRequest::terminate ? "; a resumed run starts with it" : ""));
    clock_.enter(Phase::other);
    return stop;
  }
  EvalMetrics& metrics = *evaluated;
  metrics.step = step_;
  metrics.epoch = plan().epoch(step_);
  RunTotals& totals = numbers_.totals();
  totals.has_eval = true;
  totals.eval_loss = metrics.loss;
  totals.has_perplexity = metrics.has_perplexity();
  if (model_.core.follows_evaluations() && counts)
    model_.core.evaluated(metric_of(metrics, setup_.config.output.metric_for_best_model));
  best = checkpoints_.best().update(metrics);
  journal_.evaluated(metrics);
  write_report();
  clock_.enter(Phase::other);
  return StopRequest::none;
}

/// Called when the loop ends, for whatever reason.
ExitCode TrainingLoop::finish(StopRequest stop) {
  const comm::LongPhase phase("finishing");
  update_.settle();
  const bool done = stop == StopRequest::none;
  if (numbers_.window().steps() > 0)
    log(setup_.config.output.logging_strategy != Interval::no);  // steps since the last log, after an early stop
  checkpoints_.finish();
  if (stop == StopRequest::terminate && checkpoints_.saved_step() != step_) {
    save();
    checkpoints_.finish();
    if (checkpoints_.saved_step() != step_ && world_.rank() != 0) throw FailedElsewhere(ExitCode::failed);
    if (checkpoints_.saved_step() != step_)
      throw Error(concat("step ", step_, " could not be saved before the run stopped as requested"));
  }
  if (stop == StopRequest::terminate && time_is_over())
    journal_.note(concat("--exit_duration_in_mins ", format_real(setup_.config.optimization.exit_duration_in_mins),
                         ": saved and stopped after step ", step_, " of ", plan().total_steps,
                         "; resume with --resume_from_checkpoint last"));
  clock_.enter(Phase::other);
  write_timeline();
  bring_back();
  if (done) {
    replicas_.before_save(step_);
    load_best_model();
  }
  numbers_.draw(passes_->drawing());
  numbers_.end(step_, update_.skipped(), done ? "done" : stop == StopRequest::terminate ? "terminated" : "interrupted");
  journal_.ended(numbers_.totals());
  if (done) save_final_model();
  write_papers(stop);
  if (done) return ExitCode::done;
  if (stop == StopRequest::interrupt) return ExitCode::interrupted;
  return setup_.config.output.sigterm_is_success ? ExitCode::done : ExitCode::stopped;
}

/// --profile
void TrainingLoop::write_timeline() {
  const std::optional<std::string> file = clock_.merged_trace(world_.group());
  if (!file || !output_) return;
  output_->files().add({"trace.json"});
  write_file_atomically(output_->path("trace.json"), *file);
  journal_.note(concat("timeline: ", output_->path("trace.json"), " (open it in ui.perfetto.dev)"));
}

/// On rank 0: writes the model card, the report and the last lines of the log.
void TrainingLoop::write_papers(StopRequest stop) {
  if (!output_) return;
  const bool done = stop == StopRequest::none;
  if (done) journal_.sampled(step_, numbers_.last_sample().prompt, numbers_.last_sample().text);
  const comm::LongPhase papers("model card and report");
  if (done && setup_.config.output.model_card)
    output_->write_cards(card_facts(setup_, world_, configuration_, numbers_.totals(), journal_.log_history()));
  write_report();
  output_->finish_report();
  journal_.close();
  if (done) unmark_output(setup_.config.output.output_dir);
  if (!describe_strategy(setup_.config, model_.sharded()).empty())
    if (const std::string memory = numbers_.compared_memory(); !memory.empty())
      journal_.note("memory of rank 0: " + memory);
  for (const std::string& line : numbers_.describe_end(output_->path("report.html"))) journal_.note(line);
}

void TrainingLoop::write_report() {
  if (!output_) return;
  Report report = describe_run(setup_, world_);
  report.metrics = output_->metrics();
  report.configuration = configuration_;
  numbers_.write_to(report, step_);
  if (!describe_strategy(setup_.config, model_.sharded()).empty())
    for (const auto& cells :
         unit_table(model_.sharded().units(), row_of(setup_.config.sharding.strategy).shard_parameters)) {
      Value row = Value::make_array();
      for (const std::string& cell : cells) row.push_back(Value::of(cell));
      report.units.push_back(std::move(row));
    }
  output_->write_report(std::move(report));
}

}  // namespace tessera::train
