// What a run measures, and tells.

#include <tessera/train/loop/training_loop.h>

#include <ATen/Parallel.h>

#include <unistd.h>
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <tessera/base/allocated.h>
#include <tessera/base/clock.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/long_phase.h>
#include <tessera/comm/recorder.h>
#include <tessera/launch/agent/affinity.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/loop/evaluate.h>

namespace tessera::train {
namespace {

/// "tp", "cp", "ep" or "pp" when this rank has waited for that axis more than for any other; empty else.
std::string cut_axis_waited_for() {
  std::map<std::string, double> seconds;
  for (const comm::OpTotals& row : comm::recorder().totals()) {
    const std::string axis(comm::axis_of(row.group));
    if (row.group != "world")
      seconds[axis.starts_with("cp") ? "cp" : axis.starts_with("ep") ? "ep" : axis] += row.seconds_waited;
  }
  const auto most = std::max_element(seconds.begin(), seconds.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == seconds.end()) return "";
  const std::string& axis = most->first;
  return axis == "tp" || axis == "cp" || axis == "ep" || axis == "pp" ? axis : "";
}

}  // namespace

void TrainingLoop::count_step(double seconds, double cpu_seconds) {
  window_.end_step(seconds, cpu_seconds);
  routers_.end_step(step_routers_);
  tokens_ += window_.step_tokens();
  inputs_ += window_.step_inputs();
  train_seconds_ += seconds;
  step_seconds_ = step_seconds_ == 0 || step_ <= plan_.resumed_step + 2 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  const int told_by = one_tells_loss() ? world_.size() / ranks_with_same_loss() : world_.size();
  comm::heartbeat().set_step({step_, plan_.total_steps, static_cast<std::int64_t>(seconds * 1e9),
                              static_cast<double>(window_.step_tokens()) / seconds,
                              std::isfinite(last_log_.loss) ? last_log_.loss : window_.rough_loss(told_by)});
  journal_.step([&] {
    const double loss = std::isfinite(last_log_.loss) ? last_log_.loss : window_.rough_loss(told_by);
    return ProgressState{step_,
                         plan_.total_steps,
                         loss,
                         learning_rate_,
                         static_cast<double>(window_.step_tokens()) / step_seconds_,
                         peak_resident_bytes(),
                         seconds_left()};
  });
}

void TrainingLoop::log(bool tell) {
  const std::int64_t steps = window_.steps();
  const PhaseSeconds phases = clock_.take();
  std::vector<double> sums = {noise_sums_.squared_norm, noise_sums_.trace};
  const std::size_t of_noise = sums.size();
  if (preferences_)
    for (const double sum : preferences_->take_sums()) sums.push_back(sum);
  const std::size_t before_predictions = sums.size();
  for (const double sum : predictions_.take(*setup_.model)) sums.push_back(sum);
  StepMetrics metrics = window_.close(world_.group(), phases,
                                      memory_by_kind(*setup_.model, core_.saved_model(), process_bytes_,
                                                     peak_resident_bytes(), allocated_memory().peak),
                                      at::get_num_threads(), setup_.groups.place, sums);
  if (preferences_) metrics.preference = Preferences::metrics_of(metrics.sums.data() + of_noise);
  if (setup_.config.optimization.mtp_loss_scaling_factor > 0)
    for (std::size_t i = before_predictions; i < sums.size(); ++i)
      metrics.predictions.push_back(metrics.sums[i] / static_cast<double>(steps));
  if (small_) {
    const NoiseEstimate estimate = {metrics.sums[0], metrics.sums[1]};
    noise_.add(estimate, steps);
    noise_sums_ = {};
    metrics.noise = {.measured = true,
                     .squared_norm = estimate.squared_norm / static_cast<double>(steps),
                     .trace = estimate.trace / static_cast<double>(steps),
                     .scale = noise_.rows()};
  }
  if (balance_) metrics.shares = balance_->shares();
  const std::int64_t rows = plan_.rows_of_step(step_ - 1);
  if (plan_.token_steps || !plan_.segments.empty() || small_ || rows != plan_.rows_per_step()) metrics.rows = rows;
  metrics.routers = routers_.close(*setup_.model, world_.group(), setup_.groups, std::exchange(micro_batches_, 0));
  metrics.step = step_;
  const optim::LossScale* const scale = core_.loss_scale();
  if (scale != nullptr) metrics.loss_scale = scale->scale();
  if (scale != nullptr || setup_.config.output.nan_policy == NanPolicy::skip)
    metrics.skipped_steps = skipped_steps_ - std::exchange(skipped_logged_, skipped_steps_);
  metrics.grad_norm = grad_norm_;
  metrics.learning_rate = learning_rate_;
  metrics.epoch = plan_.epoch(step_);
  if (peak_flops_ > 0) metrics.flops_utilization = metrics.tokens_per_second * flops_per_token() / peak_flops_;
  if (const CountedTokens which = setup_.config.output.include_num_input_tokens_seen; which != CountedTokens::no)
    metrics.num_input_tokens_seen =
        (which == CountedTokens::all ? inputs_ : tokens_) + (setup_.resume ? setup_.resume->num_input_tokens_seen : 0);
  last_log_ = metrics;
  loss_sum_ += metrics.loss * static_cast<double>(steps);
  cpu_seconds_ += metrics.cpu_seconds * static_cast<double>(steps);
  for (std::size_t i = 0; i < phase_count; ++i) phase_sums_[i] += metrics.phases[i] * static_cast<double>(steps);
  if (tell) {
    const comm::LongPhase writing("metrics");
    journal_.logged(metrics, plan_.total_steps, seconds_left());
  }
  if (trace_) trace_->collect();
}

bool TrainingLoop::evaluate() {
  const comm::LifeState evaluating(launch::RankState::evaluating);
  enter(Phase::other, "evaluate");
  EvalMetrics metrics =
      preferences_
          ? preferences_->evaluate(setup_, divided())
          : train::evaluate(*setup_.model, *setup_.datasets.validation,
                            setup_.config.optimization.per_device_eval_batch_size, setup_.groups.data,
                            evaluation_precision(setup_.config), divided(), setup_.config.output.logging_nan_inf_filter,
                            pipeline_ ? LossesOf([this](const auto& batches, const auto& scales) {
                              return pipeline_->evaluate(batches, scales);
                            })
                                      : LossesOf(),
                            std::int64_t{4} * setup_.groups.pipeline_ranks());
  metrics.step = step_;
  metrics.epoch = plan_.epoch(step_);
  totals_.has_eval = true;
  totals_.eval_loss = metrics.loss;
  totals_.has_perplexity = metrics.has_perplexity();
  if (core_.follows_evaluations() && step_ > plan_.resumed_step)
    core_.evaluated(metric_of(metrics, setup_.config.output.metric_for_best_model));
  const bool best = checkpoints_.best().update(metrics);
  journal_.evaluated(metrics);
  write_report();
  enter(Phase::other);
  return best;
}

/// Each rank's, told by itself: ranks may hold other stages of the model. Collective.
void TrainingLoop::predict_memory() {
  const Value own = train::predicted_memory(setup_.config, *setup_.model, sharded_->shard_ranks(),
                                            setup_.groups.engine.rank() % sharded_->shard_ranks(),
                                            plan_.batch_size * (preferences_ ? 2 : 1) * row_tokens());
  for (const std::string& text : comm::all_gather_text(world_.group(), dump_json(own, -1)))
    predicted_memory_.push_back(parse_json(text, "predicted memory"));
}

/// Means over the steps of this process, and the machine as of the last log.
Utilization TrainingLoop::utilization() const {
  const double steps = static_cast<double>(std::max<std::int64_t>(1, step_ - plan_.resumed_step));
  Utilization run;
  run.steps = step_ - plan_.resumed_step;
  run.seconds = phase_sums_;
  for (double& seconds : run.seconds) seconds /= steps;
  run.ranks = world_.size();
  run.local_ranks = world_.local_size();
  run.threads = at::get_num_threads();
  run.cores = static_cast<std::int64_t>(launch::usable_cores().size());
  run.micro_batch = plan_.batch_size;
  run.accumulation = plan_.accumulation;
  run.cut_axis = cut_axis_waited_for();
  run.gathers_parameters = divided() && row_of(setup_.config.sharding.strategy).shard_parameters;
  if (train_seconds_ > 0) {
    run.cpu_utilization = cpu_seconds_ / (train_seconds_ * static_cast<double>(run.ranks * run.threads));
    if (peak_flops_ > 0)
      run.flops_utilization = static_cast<double>(tokens_) / train_seconds_ * flops_per_token() / peak_flops_;
  }
  run.peak_bytes = last_log_.peak_memory_bytes();
  for (const MemoryByKind& kinds : last_log_.memory_kinds)
    run.activation_bytes = std::max(run.activation_bytes, kinds[kinds.size() - 2] + kinds.back());
  run.machine_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return run;
}

void TrainingLoop::count_totals(StopRequest stop) {
  totals_.steps = step_;
  totals_.steps_here = step_ - plan_.resumed_step;
  totals_.epoch = plan_.epoch(step_);
  totals_.tokens = tokens_;
  totals_.rows = plan_.samples(step_) - plan_.resumed_samples;
  totals_.seconds = seconds_since(started_ns_);
  totals_.skipped_steps = skipped_steps_;
  totals_.loss_scale = last_log_.loss_scale;
  totals_.loss = last_log_.loss;
  totals_.train_loss = totals_.steps_here > 0 ? loss_sum_ / static_cast<double>(totals_.steps_here) : not_known;
  totals_.tokens_per_second = train_seconds_ > 0 ? static_cast<double>(tokens_) / train_seconds_ : 0;
  totals_.flops_per_second = totals_.tokens_per_second * flops_per_token();
  totals_.peak_flops_per_second = peak_flops_;
  totals_.total_flops = run_state().total_flos;
  totals_.peak_memory_bytes = std::max(last_log_.peak_memory_bytes(), peak_resident_bytes());
  totals_.peak_allocated_bytes = last_log_.peak_allocated_bytes();
  totals_.reason = stop == StopRequest::none ? "done" : stop == StopRequest::terminate ? "terminated" : "interrupted";
  totals_.advice = advise(utilization()).line();
  totals_.communication = communication_table();
}

void TrainingLoop::write_report() {
  if (!output_) return;
  Report report = describe_run(setup_, world_);
  report.metrics = output_->metrics();
  report.configuration = configuration_;
  report.communication = communication_table();
  report.memory = Value::make_array();
  for (const MemoryByKind& kinds : last_log_.memory_kinds) report.memory.push_back(to_json(kinds));
  for (const Value& rank : predicted_memory_) report.predicted_memory.push_back(rank);
  if (!describe_strategy(setup_.config, *sharded_).empty())
    for (const auto& cells : unit_table(sharded_->units(), row_of(setup_.config.sharding.strategy).shard_parameters)) {
      Value row = Value::make_array();
      for (const std::string& cell : cells) row.push_back(Value::of(cell));
      report.units.push_back(std::move(row));
    }
  report.pipeline = pipeline_drawing_;
  for (const auto& [block, shares] : last_log_.routers.load) {
    Value row = Value::make_array();
    for (const double share : shares) row.push_back(Value::of(share));
    report.expert_load.push_back(Value::make_object({{"block", Value::of(block)}, {"shares", std::move(row)}}));
  }
  report.unigram_entropy = totals_.unigram_entropy;
  report.advice = advise(utilization()).line();
  report.sample_before = first_sample_.text;
  report.sample_prompt = last_sample_.text.empty() ? first_sample_.prompt : last_sample_.prompt;
  report.sample_text = last_sample_.text;
  output_->write_report(std::move(report));
}

}  // namespace tessera::train
