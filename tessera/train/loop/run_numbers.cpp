#include <tessera/train/loop/run_numbers.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <tessera/base/allocated.h>
#include <tessera/base/clock.h>
#include <tessera/comm/long_phase.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/launch/agent/affinity.h>
#include <tessera/train/inference/unigram.h>
#include <tessera/train/loop/passes.h>
#include <tessera/train/loop/sharding.h>
#include <tessera/train/reporting/utilization.h>

namespace tessera::train {
namespace {

/// "tp", "cp", "ep" or "pp" if this rank has waited for that axis more than for any other; otherwise empty.
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

std::int64_t row_tokens(const Setup& setup) { return setup.datasets.train->max_length(); }

}  // namespace

bool is_divided(const Setup& setup, ParallelModel& model) {
  return model.sharded().shard_ranks() > 1 || setup.groups.cuts() || setup.groups.expert_ranks() > 1;
}

RunNumbers::RunNumbers(const Setup& setup, comm::World& world, ParallelModel& model, std::int64_t process_bytes)
    : setup_(setup),
      world_(world),
      model_(model),
      process_bytes_(process_bytes),
      window_(setup.config.output.hf_loss_scale, setup.config.output.logging_nan_inf_filter) {
  last_log_.loss = not_known;
}

void RunNumbers::predict_memory(std::int64_t tokens) {
  const int shard_ranks = model_.sharded().shard_ranks();
  const Value own =
      predicted_memory(setup_.config, *setup_.model, shard_ranks, setup_.groups.engine.rank() % shard_ranks, tokens);
  for (const std::string& text : comm::all_gather_text(world_.group(), dump_json(own, -1)))
    predicted_memory_.push_back(parse_json(text, "predicted memory"));
}

void RunNumbers::measure_yardsticks(bool tells) {
  const comm::LongPhase phase("measuring");
  const comm::Tag tag("start");
  std::vector<double> peak = {measured_peak_flops(world_.device(), setup_.config.optimization.bf16)};
  comm::all_reduce_numbers(world_.group(), peak);
  peak_flops_ = peak.front();
  if (tells) totals_.unigram_entropy = unigram_entropy(*setup_.rows_to_show(), setup_.model->vocab_size());
  if ((tells || is_divided(setup_, model_)) && !setup_.config.model.model_name_or_path.empty() && !setup_.resume)
    first_sample_ = sample_text(setup_);
  // the other ranks wait here, so that their wait does not count as a step's communication
  world_.group().barrier().wait();
}

void RunNumbers::start() {
  totals_.startup_seconds = seconds_since_process_start();
  started_ns_ = monotonic_ns();
}

void RunNumbers::end_step(std::int64_t step, double seconds, double cpu_seconds) {
  window_.end_step(seconds, cpu_seconds);
  tokens_ += window_.step_tokens();
  inputs_ += window_.step_inputs();
  train_seconds_ += seconds;
  const bool is_early = step_seconds_ == 0 || step <= setup_.plan.resumed_step + 2;
  step_seconds_ = is_early ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
}

double RunNumbers::rough_loss() const {
  if (std::isfinite(last_log_.loss)) return last_log_.loss;
  return window_.rough_loss(one_tells_loss(setup_) ? world_.size() / ranks_with_same_loss(setup_.groups)
                                                   : world_.size());
}

double RunNumbers::seconds_left(std::int64_t step) const {
  return step_seconds_ * static_cast<double>(setup_.plan.total_steps - step);
}

StepMetrics RunNumbers::close_window(const PhaseSeconds& phases, const std::vector<double>& sums) {
  return window_.close(world_.group(), phases,
                       memory_by_kind(*setup_.model, model_.core.saved_model(), process_bytes_, peak_resident_bytes(),
                                      allocated_memory().peak),
                       at::get_num_threads(), setup_.groups.place, sums);
}

void RunNumbers::logged(const StepMetrics& metrics, std::int64_t steps_of_window) {
  const auto steps = static_cast<double>(steps_of_window);
  last_log_ = metrics;
  loss_sum_ += metrics.loss * steps;
  cpu_seconds_ += metrics.cpu_seconds * steps;
  for (std::size_t i = 0; i < phase_count; ++i) phase_sums_[i] += metrics.phases[i] * steps;
}

double RunNumbers::flops_utilization(double tokens_per_second) const {
  return peak_flops_ > 0 ? tokens_per_second * flops_per_token() / peak_flops_ : 0;
}

double RunNumbers::flops_per_token() const {
  return setup_.lora ? models::lora_flops_per_token(*setup_.model, row_tokens(setup_))
                     : setup_.model->flops_per_token(row_tokens(setup_));
}

std::int64_t RunNumbers::input_tokens_seen() const {
  const CountedTokens which = setup_.config.output.include_num_input_tokens_seen;
  if (which == CountedTokens::no) return -1;
  return (which == CountedTokens::all ? inputs_ : tokens_) + (setup_.resume ? setup_.resume->num_input_tokens_seen : 0);
}

std::int64_t RunNumbers::tokens_since_step_0() const {
  return tokens_ + (setup_.resume ? setup_.resume->num_input_tokens_seen : 0);
}

/// Averages over the steps of this process; the machine's state is that of the last log.
Utilization RunNumbers::utilization(std::int64_t step) const {
  const RunPlan& plan = setup_.plan;
  const double steps = static_cast<double>(std::max<std::int64_t>(1, step - plan.resumed_step));
  Utilization run;
  run.steps = step - plan.resumed_step;
  run.seconds = phase_sums_;
  for (double& seconds : run.seconds) seconds /= steps;
  run.ranks = world_.size();
  run.local_ranks = world_.local_size();
  run.threads = at::get_num_threads();
  run.cores = static_cast<std::int64_t>(launch::usable_cores().size());
  run.micro_batch = plan.batch_size;
  run.accumulation = plan.accumulation;
  run.cut_axis = cut_axis_waited_for();
  run.gathers_parameters = is_divided(setup_, model_) && row_of(setup_.config.sharding.strategy).shard_parameters;
  if (train_seconds_ > 0) {
    run.cpu_utilization = cpu_seconds_ / (train_seconds_ * static_cast<double>(run.ranks * run.threads));
    if (peak_flops_ > 0) run.flops_utilization = flops_utilization(static_cast<double>(tokens_) / train_seconds_);
  }
  run.peak_bytes = last_log_.peak_memory_bytes();
  for (const MemoryByKind& kinds : last_log_.memory_kinds)
    run.activation_bytes = std::max(run.activation_bytes, kinds[kinds.size() - 2] + kinds.back());
  run.machine_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return run;
}

void RunNumbers::end(std::int64_t step, std::int64_t skipped_steps, const std::string& reason) {
  const RunPlan& plan = setup_.plan;
  totals_.steps = step;
  totals_.steps_here = step - plan.resumed_step;
  totals_.epoch = plan.epoch(step);
  totals_.tokens = tokens_;
  totals_.rows = plan.samples(step) - plan.resumed_samples;
  totals_.seconds = seconds_since(started_ns_);
  totals_.skipped_steps = skipped_steps;
  totals_.loss_scale = last_log_.loss_scale;
  totals_.loss = last_log_.loss;
  totals_.train_loss = totals_.steps_here > 0 ? loss_sum_ / static_cast<double>(totals_.steps_here) : not_known;
  totals_.tokens_per_second = train_seconds_ > 0 ? static_cast<double>(tokens_) / train_seconds_ : 0;
  totals_.flops_per_second = totals_.tokens_per_second * flops_per_token();
  totals_.peak_flops_per_second = peak_flops_;
  totals_.total_flops = flops_per_token() * static_cast<double>(tokens_since_step_0());
  totals_.peak_memory_bytes = std::max(last_log_.peak_memory_bytes(), peak_resident_bytes());
  totals_.peak_allocated_bytes = last_log_.peak_allocated_bytes();
  totals_.reason = reason;
  totals_.advice = advice(step);
  totals_.communication = communication_table();
}

void RunNumbers::sample(bool tells) {
  const comm::LongPhase phase("sample of text");
  if (tells || is_divided(setup_, model_)) last_sample_ = sample_text(setup_);
}

std::string RunNumbers::advice(std::int64_t step) const { return advise(utilization(step)).line(); }

void RunNumbers::write_to(Report& report, std::int64_t step) const {
  report.communication = communication_table();
  report.memory = Value::make_array();
  for (const MemoryByKind& kinds : last_log_.memory_kinds) report.memory.push_back(to_json(kinds));
  for (const Value& rank : predicted_memory_) report.predicted_memory.push_back(rank);
  for (const auto& [block, shares] : last_log_.routers.load) {
    Value row = Value::make_array();
    for (const double share : shares) row.push_back(Value::of(share));
    report.expert_load.push_back(Value::make_object({{"block", Value::of(block)}, {"shares", std::move(row)}}));
  }
  report.pipeline = drawing_;
  report.unigram_entropy = totals_.unigram_entropy;
  report.advice = advice(step);
  report.sample_before = first_sample_.text;
  report.sample_prompt = last_sample_.text.empty() ? first_sample_.prompt : last_sample_.prompt;
  report.sample_text = last_sample_.text;
}

std::string RunNumbers::compared_memory() const {
  if (last_log_.memory_kinds.empty()) return {};
  return compare_memory(predicted_memory_[0], to_json(last_log_.memory_kinds.front()));
}

std::vector<std::string> RunNumbers::describe_end(const std::string& report_path) const {
  return train::describe_end(setup_, totals_, first_sample_, last_sample_, report_path);
}

}  // namespace tessera::train
