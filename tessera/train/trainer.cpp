#include <tessera/train/trainer.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <tessera/base/file.h>
#include <tessera/comm/life.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/world.h>
#include <tessera/config/sharding.h>
#include <tessera/launch/affinity.h>
#include <tessera/nn/autocast.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/advice.h>
#include <tessera/train/evaluate.h>
#include <tessera/train/fixed_order.h>
#include <tessera/train/gathered.h>
#include <tessera/train/journal.h>
#include <tessera/train/optimization.h>
#include <tessera/train/random_key.h>
#include <tessera/train/restart.h>
#include <tessera/train/sharding.h>
#include <tessera/train/signals.h>
#include <tessera/train/summary.h>
#include <tessera/train/trace.h>
#include <tessera/train/unigram.h>
#include <tessera/train/window.h>

namespace tessera::train {
namespace {

constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

class Trainer {
 public:
  Trainer(Setup setup, const Value& configuration, std::int64_t process_bytes);
  ExitCode run();

 private:
  /// What the ranks tell each other before every step.
  struct Agreement {
    StepCounts counts;
    StopRequest stop = StopRequest::none;
  };

  void shard_model();
  Value predicted_memory(int rank) const {
    return train::predicted_memory(setup_.config, *setup_.model, sharded_->shard_ranks(), rank, plan_.batch_size * row_tokens());
  }
  void enter(Phase phase, std::string_view name);
  void enter(Phase phase) { enter(phase, phase_names[static_cast<std::size_t>(phase)]); }
  void prepare_measuring();
  std::vector<data::Batch> read_step() const;
  Agreement agree_on_step(const std::vector<data::Batch>& batches) const;
  void compute_gradients(const std::vector<data::Batch>& batches, std::int64_t scored_tokens);
  bool update_weights();
  void check_norm();
  void count_step(double seconds, double cpu_seconds);
  void log();
  void evaluate();
  void save();
  void save_final_model();
  ExitCode finish(StopRequest stop);
  void count_totals(StopRequest stop);
  void write_report();

  checkpoint::RunState run_state() const;
  Utilization utilization() const;
  double seconds_left() const { return step_seconds_ * static_cast<double>(plan_.total_steps - step_); }
  std::int64_t row_tokens() const { return setup_.datasets.train->max_length(); }
  double flops_per_token() const {
    return setup_.lora ? models::lora_flops_per_token(*setup_.model, row_tokens())
                       : setup_.model->flops_per_token(row_tokens());
  }
  /// Of matrix products; parameters that are gathered in a narrow type are so already.
  std::optional<at::ScalarType> narrow() const {
    const OptimizationConfig& o = setup_.config.optimization;
    if (setup_.config.sharding.param_dtype != "fp32") return std::nullopt;
    return o.bf16 ? std::optional(at::kBFloat16) : o.fp16 ? std::optional(at::kHalf) : std::nullopt;
  }
  /// Parts of the model are elsewhere, so that forward passes and saving are collective.
  bool divided() const { return sharded_->shard_ranks() > 1; }
  bool fixed_order() const { return setup_.config.parallel.deterministic_reduce; }

  Setup setup_;
  const Value& configuration_;
  comm::World& world_;
  const RunPlan& plan_;
  const data::Sampler sampler_;
  std::optional<Sharded> sharded_;
  std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing_;  // --gradient_checkpointing
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScale> loss_scale_;  // --fp16
  optim::Schedule schedule_;
  StopSignals signals_;
  std::optional<OutputFolder> output_;  // rank 0
  Journal journal_;

  std::int64_t step_ = 0;  // done
  std::int64_t saved_step_ = -1;
  std::int64_t skipped_steps_ = 0;  // of --fp16, whose gradients overflowed
  double grad_norm_ = 0, learning_rate_ = 0;
  PhaseClock clock_;
  std::optional<Trace> trace_;  // --profile
  std::int64_t trace_zero_ns_ = 0;
  Window window_;
  std::int64_t process_bytes_;
  double peak_flops_ = 0;  // of all ranks
  // Since the start of this process.
  std::int64_t tokens_ = 0;
  double train_seconds_ = 0;
  double step_seconds_ = 0;  // smoothed, for the time left
  double loss_sum_ = 0, cpu_seconds_ = 0;
  PhaseSeconds phase_sums_ = {};
  StepMetrics last_log_;
  RunTotals totals_;
  std::int64_t started_ns_ = 0;
  Sample first_sample_, last_sample_;
};

Trainer::Trainer(Setup setup, const Value& configuration, std::int64_t process_bytes)
    : setup_(std::move(setup)),
      configuration_(configuration),
      world_(world()),
      plan_(setup_.plan),
      sampler_(setup_.config.data.train_sampling_strategy, *setup_.datasets.train,
               static_cast<std::uint64_t>(setup_.config.optimization.seed), plan_.rows_per_step()),
      loss_scale_(make_loss_scale(setup_.config.optimization)),
      schedule_(make_schedule(setup_.config.optimization, plan_)),
      journal_(setup_, world_),
      step_(plan_.resumed_step),
      window_(setup_.config.output.hf_loss_scale),
      process_bytes_(process_bytes) {
  last_log_.loss = not_known;
  agree(world_.group(), [&] { shard_model(); });
  agree(world_.group(), [&] {
    optimizer_ = make_optimizer(setup_.config.optimization, *setup_.model, *sharded_);
    if (!setup_.resume) return;
    restore_optimizer(*optimizer_, *sharded_, *setup_.resume, setup_.resume_folder);
    if (loss_scale_ && setup_.resume->loss_scale > 0)
      loss_scale_->set_state({setup_.resume->loss_scale, setup_.resume->loss_scale_good_steps, setup_.resume->loss_scale_skipped_steps});
  });
  agree(world_.group(), [&] {  // the first thing that is written
    if (world_.rank() != 0) return;
    output_.emplace(setup_);
    journal_.open(*output_, configuration_);
  });
}

/// Collective; wrong class names and the like throw the same on every rank.
void Trainer::shard_model() {
  ShardingOptions options = sharding_options(setup_.config, *setup_.model, world_.group());
  bool filled = false;  // a model that is not divided after all is not asked for
  if (setup_.weights)
    options.load = [&](const std::string& name, at::IntArrayRef, std::int64_t begin, at::Tensor piece) {
      filled = true;
      return setup_.weights->read(name, begin, piece);
    };
  sharded_.emplace(*setup_.model, std::move(options));
  if (setup_.weights && !filled)
    for (const auto& item : setup_.model->named_parameters()) setup_.weights->read(item.key(), 0, item.value().detach());
  setup_.weights.reset();
  if (setup_.config.optimization.gradient_checkpointing)
    checkpointing_ = models::checkpoint_blocks(*setup_.model, checkpoint_plan(setup_.config.optimization));
}

ExitCode Trainer::run() {
  for (const std::string& line : describe_start(setup_, world_)) journal_.note(line);
  for (const std::string& line : describe_sharding(setup_.config, *setup_.model, *sharded_, world_.rank())) journal_.note(line);
  prepare_measuring();
  totals_.startup_seconds = seconds_since_process_start();
  if (setup_.config.output.profile) {
    trace_zero_ns_ = common_zero(world_.group(), world_.local_size() == world_.size());
    trace_.emplace();
  }
  started_ns_ = comm::monotonic_ns();
  setup_.model->train();

  if (setup_.config.output.eval_on_start && setup_.datasets.validation) evaluate();
  while (step_ < plan_.total_steps) {
    const std::int64_t begin_ns = comm::monotonic_ns();
    const double begin_cpu = process_cpu_seconds();
    enter(Phase::data);
    const std::vector<data::Batch> batches = read_step();
    const Agreement agreed = agree_on_step(batches);
    if (agreed.stop != StopRequest::none) return finish(agreed.stop);

    window_.begin_step(agreed.counts);
    compute_gradients(batches, agreed.counts.scored_tokens);
    enter(Phase::optimizer, "clip");
    if (!update_weights()) skipped_steps_ += 1;
    if (const auto& compression = sharded_->options().compression) compression->step_done();
    ++step_;
    enter(Phase::other);
    count_step(static_cast<double>(comm::monotonic_ns() - begin_ns) * 1e-9, process_cpu_seconds() - begin_cpu);

    if (plan_.logs_after(step_)) log();
    if (plan_.evaluates_after(step_)) evaluate();
    if (plan_.saves_after(step_)) save();
  }
  return finish(StopRequest::none);
}

/// What follows is booked on `phase`; `name` is what people see of it.
void Trainer::enter(Phase phase, std::string_view name) {
  clock_.enter(phase);
  if (trace_) trace_->phase(phase == Phase::other && name == "other" ? "" : name);
  comm::life().set_phase(name);
}

/// The yardsticks: what the processors can do, what frequencies alone predict, what a pretrained model said before.
void Trainer::prepare_measuring() {
  const comm::Tag tag("start");
  at::Tensor peak = at::full({1}, measured_peak_flops(world_.device(), setup_.config.optimization.bf16),
                             at::TensorOptions().dtype(at::kDouble).device(world_.device()));
  world_.group().all_reduce(peak).wait();
  peak_flops_ = peak.item<double>();
  if (output_) totals_.unigram_entropy = unigram_entropy(*setup_.datasets.train, setup_.model->vocab_size());
  if ((output_ || divided()) && !setup_.config.model.model_name_or_path.empty() && !setup_.resume)
    first_sample_ = sample_text(setup_);
  world_.group().barrier().wait();  // the others wait here, where it is not counted as communication of a step
}

/// This rank's micro-batches of the next step.
std::vector<data::Batch> Trainer::read_step() const {
  std::vector<data::Batch> batches;
  for (std::int64_t micro = 0; micro < plan_.accumulation; ++micro)
    batches.push_back(data::make_batch(*setup_.datasets.train, sampler_, plan_.first_row(step_, micro, world_.rank()),
                                       plan_.batch_size));
  return batches;
}

/// The counts of the whole step, whose scored tokens the loss is divided by, and whether anyone was asked to stop.
Trainer::Agreement Trainer::agree_on_step(const std::vector<data::Batch>& batches) const {
  const comm::Tag tag("step");
  const StepCounts own = count(batches);
  const StopRequest asked = signals_.requested();
  at::Tensor all =
      at::tensor({own.scored_tokens, own.tokens, own.labels_not_ignored, std::int64_t{asked == StopRequest::terminate},
                  std::int64_t{asked == StopRequest::interrupt}},
                 at::kLong)
          .to(world_.device());  // [5]
  world_.group().all_reduce(all).wait();
  all = all.cpu();
  const auto* sums = all.data_ptr<std::int64_t>();
  if (sums[0] == 0) throw Error(concat("step ", step_ + 1, ": no token of the batch is scored (all labels are -100)"));
  return {{sums[0], sums[1], sums[2]},
          sums[4] > 0   ? StopRequest::interrupt
          : sums[3] > 0 ? StopRequest::terminate
                        : StopRequest::none};
}

/// Forward and backward of each micro-batch. The loss of the step is the mean over its scored tokens, wherever they
/// are, so each share is divided by the count of all ranks and micro-batches, and the reduction is a sum. The last
/// backward reduces; in fixed order each does.
void Trainer::compute_gradients(const std::vector<data::Batch>& batches, std::int64_t scored_tokens) {
  const double scale = 1.0 / static_cast<double>(scored_tokens) * (loss_scale_ ? loss_scale_->scale() : 1.0);
  sharded_->zero_grad();
  for (std::size_t micro = 0; micro < batches.size(); ++micro) {
    enter(Phase::forward);
    std::optional<Sharded::NoSync> only_here;
    if (micro + 1 < batches.size() && !fixed_order()) only_here.emplace(*sharded_);
    key_random_numbers(world_.device(), static_cast<std::uint64_t>(setup_.config.optimization.seed), step_,
                       plan_.first_row(step_, static_cast<std::int64_t>(micro), world_.rank()));
    const at::Tensor loss = [&] {
      const nn::Autocast precision(narrow(), world_.device().type());
      return setup_.model->loss(to_device(batches[micro], world_.device()), scale);
    }();
    enter(Phase::backward);
    loss.backward();
    comm::life().advance();
    window_.add_loss(loss.item<double>() / scale);
  }
}

/// Clipping and the optimizer step in one pass over the gradients. With --fp16 a step whose gradients overflowed is skipped; returns
/// whether it was taken.
bool Trainer::update_weights() {
  const auto& config = setup_.config.optimization;
  grad_norm_ = sharded_->grad_norm();
  learning_rate_ = config.learning_rate * optim::schedule_factor(schedule_, step_);
  if (!loss_scale_) {
    check_norm();
    enter(Phase::optimizer);
    optimizer_->step(learning_rate_, optim::clip_coefficient(grad_norm_, config.max_grad_norm));
    return true;
  }
  const double factor = loss_scale_->gradient_factor();
  const bool good = loss_scale_->update(grad_norm_);
  grad_norm_ *= factor;
  enter(Phase::optimizer);
  if (good) optimizer_->step(learning_rate_, factor * optim::clip_coefficient(grad_norm_, config.max_grad_norm));
  return good;
}

/// Every rank has the same norm; one tells what is wrong with it. Collective where it is not finite.
void Trainer::check_norm() {
  if (std::isfinite(grad_norm_)) return;
  std::string where;
  try {
    sharded_->clip_grad_norm(0);
  } catch (const Error& error) {
    where = error.what();  // names rank and parameter
  }
  if (world_.rank() != 0) throw FailedElsewhere(ExitCode::failed);
  throw Error(concat("step ", step_ + 1, ": the gradient norm is ", format_real(grad_norm_),
                     ": the training diverged. Lower --learning_rate (now ", format_real(setup_.config.optimization.learning_rate),
                     "), add --warmup_steps, or clip with --max_grad_norm; the last checkpoint is unharmed",
                     where.empty() ? "" : concat(" (", where, ")")));
}

void Trainer::count_step(double seconds, double cpu_seconds) {
  window_.end_step(seconds, cpu_seconds);
  tokens_ += window_.step_tokens();
  train_seconds_ += seconds;
  step_seconds_ = step_seconds_ == 0 || step_ <= plan_.resumed_step + 2 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  comm::life().set_step({step_, plan_.total_steps, static_cast<std::int64_t>(seconds * 1e9),
                         static_cast<double>(window_.step_tokens()) / seconds,
                         std::isfinite(last_log_.loss) ? last_log_.loss : window_.rough_loss(world_.size())});
  journal_.step([&] {
    const double loss = std::isfinite(last_log_.loss) ? last_log_.loss : window_.rough_loss(world_.size());
    return ProgressState{step_,
                         plan_.total_steps,
                         loss,
                         learning_rate_,
                         static_cast<double>(window_.step_tokens()) / step_seconds_,
                         peak_resident_bytes(),
                         seconds_left()};
  });
}

void Trainer::log() {
  const std::int64_t steps = window_.steps();
  const PhaseSeconds phases = clock_.take();
  StepMetrics metrics = window_.close(world_.group(), phases,
                                      memory_by_kind(*setup_.model, *sharded_, *optimizer_, process_bytes_, peak_resident_bytes()),
                                      at::get_num_threads());
  metrics.step = step_;
  metrics.grad_norm = grad_norm_;
  metrics.learning_rate = learning_rate_;
  metrics.epoch = plan_.epoch(step_);
  if (peak_flops_ > 0) metrics.flops_utilization = metrics.tokens_per_second * flops_per_token() / peak_flops_;
  last_log_ = metrics;
  loss_sum_ += metrics.loss * static_cast<double>(steps);
  cpu_seconds_ += metrics.cpu_seconds * static_cast<double>(steps);
  for (std::size_t i = 0; i < phase_count; ++i) phase_sums_[i] += metrics.phases[i] * static_cast<double>(steps);
  journal_.logged(metrics, plan_.total_steps, seconds_left());
  if (trace_) trace_->collect();
}

void Trainer::evaluate() {
  const comm::LifeState evaluating(launch::RankState::evaluating);
  enter(Phase::other, "evaluate");
  EvalMetrics metrics = train::evaluate(*setup_.model, *setup_.datasets.validation,
                                        setup_.config.optimization.per_device_eval_batch_size, world_.group(), narrow(), divided());
  metrics.step = step_;
  metrics.epoch = plan_.epoch(step_);
  totals_.has_eval = true;
  totals_.eval_loss = metrics.loss;
  journal_.evaluated(metrics);
  write_report();
  enter(Phase::other);
}

void Trainer::save() {
  saved_step_ = step_;
  if (!output_ && !divided()) return;
  const comm::LifeState saving(launch::RankState::saving);
  enter(Phase::other, "save");
  std::string folder;
  const auto write = [&] {
    GatheredTensors weights = trained_weights(*sharded_), states = optimizer_states(*sharded_, *optimizer_);
    std::function<void()> writer;
    if (output_)
      writer = [&] {
        checkpoint::RunState state = run_state();
        state.optimizer_sources = states.sources();
        folder = output_->save_checkpoint(setup_, weights.sources(), state);
      };
    write_gathered({&weights, &states}, writer);
  };
  if (divided())
    agree(world_.group(), write);
  else
    write();
  if (output_) journal_.note(concat("saved ", folder));
  write_report();
  enter(Phase::other);
}

void Trainer::save_final_model() {
  if (!output_ && !divided()) return;
  const auto write = [&] {
    GatheredTensors weights = trained_weights(*sharded_);
    std::function<void()> writer;
    if (output_) writer = [&] { output_->save_model(setup_, weights.sources(), run_state()); };
    write_gathered({&weights}, writer);
  };
  if (divided())
    agree(world_.group(), write);
  else
    write();
  if (output_) output_->save_merged(setup_);
  last_sample_ = sample_text(setup_);
}

checkpoint::RunState Trainer::run_state() const {
  const OptimizationConfig& optimization = setup_.config.optimization;
  checkpoint::RunState state;
  state.step = step_;
  state.samples = plan_.samples(step_);
  state.seed = static_cast<std::uint64_t>(optimization.seed);
  state.log_history = journal_.log_history();
  state.optimizer_steps = optimizer_->steps();
  if (loss_scale_) {
    state.loss_scale = loss_scale_->state().scale;
    state.loss_scale_good_steps = loss_scale_->state().good_steps;
    state.loss_scale_skipped_steps = loss_scale_->state().skipped_steps;
  }
  state.epoch = plan_.epoch(step_);
  state.max_steps = plan_.total_steps;
  state.num_train_epochs = optimization.num_train_epochs;
  state.train_batch_size = optimization.per_device_train_batch_size;
  state.logging_steps = plan_.logging_steps;
  state.eval_steps = plan_.eval_every;
  state.save_steps = plan_.save_every;
  state.num_input_tokens_seen = tokens_ + (setup_.resume ? setup_.resume->num_input_tokens_seen : 0);
  state.total_flos = flops_per_token() * static_cast<double>(state.num_input_tokens_seen);
  return state;
}

/// Means over the steps of this process, and the machine as of the last log.
Utilization Trainer::utilization() const {
  const double steps = static_cast<double>(std::max<std::int64_t>(1, step_ - plan_.resumed_step));
  Utilization run;
  run.seconds = phase_sums_;
  for (double& seconds : run.seconds) seconds /= steps;
  run.ranks = world_.size();
  run.local_ranks = world_.local_size();
  run.threads = at::get_num_threads();
  run.cores = static_cast<std::int64_t>(launch::usable_cores().size());
  run.micro_batch = plan_.batch_size;
  run.accumulation = plan_.accumulation;
  run.gathers_parameters = divided() && config::shards_parameters(setup_.config.sharding.strategy);
  if (train_seconds_ > 0) {
    run.cpu_utilization = cpu_seconds_ / (train_seconds_ * static_cast<double>(run.ranks * run.threads));
    if (peak_flops_ > 0)
      run.flops_utilization = static_cast<double>(tokens_) / train_seconds_ * flops_per_token() / peak_flops_;
  }
  run.peak_bytes = last_log_.peak_memory_bytes();
  for (const MemoryByKind& kinds : last_log_.memory_kinds)
    run.activation_bytes = std::max(run.activation_bytes, kinds.back());
  run.machine_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return run;
}

/// The end of the loop, whatever led to it.
ExitCode Trainer::finish(StopRequest stop) {
  if (window_.steps() > 0) log();  // an early stop between two logs
  if (stop == StopRequest::terminate && saved_step_ != step_) save();
  enter(Phase::other);
  if (trace_) {
    trace_->collect();
    const std::string file = merge_traces(*trace_, trace_zero_ns_, world_.group());
    if (output_) {
      write_file_atomically(output_->path("trace.json"), file);
      journal_.note(concat("timeline: ", output_->path("trace.json"), " (open it in ui.perfetto.dev)"));
    }
  }
  count_totals(stop);
  journal_.ended(totals_);
  if (stop == StopRequest::none) save_final_model();
  if (output_) {
    if (stop == StopRequest::none) journal_.sampled(step_, last_sample_.prompt, last_sample_.text);
    write_report();
    journal_.close();
    if (stop == StopRequest::none) unmark_output(setup_.config.output.output_dir);
    if (!describe_strategy(setup_.config, *sharded_).empty() && !last_log_.memory_kinds.empty())
      journal_.note("memory of rank 0: " + compare_memory(predicted_memory(0), to_json(last_log_.memory_kinds.front())));
    for (const std::string& line :
         describe_end(setup_, totals_, first_sample_, last_sample_, output_->path("report.html")))
      journal_.note(line);
  }
  if (stop == StopRequest::none) return ExitCode::done;
  return stop == StopRequest::terminate ? ExitCode::stopped : ExitCode::interrupted;
}

void Trainer::count_totals(StopRequest stop) {
  totals_.steps = step_;
  totals_.steps_here = step_ - plan_.resumed_step;
  totals_.epoch = plan_.epoch(step_);
  totals_.tokens = tokens_;
  totals_.rows = totals_.steps_here * plan_.rows_per_step();
  totals_.seconds = static_cast<double>(comm::monotonic_ns() - started_ns_) * 1e-9;
  totals_.loss = last_log_.loss;
  totals_.train_loss = totals_.steps_here > 0 ? loss_sum_ / static_cast<double>(totals_.steps_here) : not_known;
  totals_.tokens_per_second = train_seconds_ > 0 ? static_cast<double>(tokens_) / train_seconds_ : 0;
  totals_.flops_per_second = totals_.tokens_per_second * flops_per_token();
  totals_.peak_flops_per_second = peak_flops_;
  totals_.total_flops = run_state().total_flos;
  totals_.peak_memory_bytes = std::max(last_log_.peak_memory_bytes(), peak_resident_bytes());
  totals_.reason = stop == StopRequest::none ? "done" : stop == StopRequest::terminate ? "terminated" : "interrupted";
  totals_.advice = advise(utilization()).line();
  totals_.communication = communication_table();
}

void Trainer::write_report() {
  if (!output_) return;
  Report report = describe_run(setup_, world_);
  report.metrics = output_->metrics().lines();
  report.configuration = configuration_;
  report.communication = communication_table();
  report.memory = Value::make_array();
  for (const MemoryByKind& kinds : last_log_.memory_kinds) report.memory.push_back(to_json(kinds));
  for (int rank = 0; rank < world_.size(); ++rank)
    report.predicted_memory.push_back(predicted_memory(rank));
  if (!describe_strategy(setup_.config, *sharded_).empty())
    for (const auto& cells : unit_table(sharded_->units(), config::shards_parameters(setup_.config.sharding.strategy))) {
      Value row = Value::make_array();
      for (const std::string& cell : cells) row.push_back(Value::of(cell));
      report.units.push_back(std::move(row));
    }
  report.unigram_entropy = totals_.unigram_entropy;
  report.advice = advise(utilization()).line();
  report.sample_before = first_sample_.text;
  report.sample_prompt = last_sample_.text.empty() ? first_sample_.prompt : last_sample_.prompt;
  report.sample_text = last_sample_.text;
  output_->write_report(report);
}

ExitCode run(const RunConfig& config, const Value& resolved, comm::World& ranks) {
  const std::int64_t process_bytes = resident_bytes();
  Setup setup;
  agree(ranks.group(), [&] {
    const RunConfig here = with_fixed_order(config, resolved, ranks.size());
    set_threads(here.parallel.threads_per_process, ranks.local_size());
    setup = prepare(here, ranks);
    make_schedule(config.optimization, setup.plan);  // bad parameters are told once, too
    optim::check_optimizer(optimizer_choice(config.optimization));
  });
  check_same_start(ranks.group(), setup.plan.resumed_step);
  return Trainer(std::move(setup), resolved, process_bytes).run();
}

}  // namespace

ExitCode train(const RunConfig& config, const Value& resolved) {
  try {
    return run(config, resolved, world());
  } catch (const FailedElsewhere&) {
    throw;  // another rank says why
  } catch (const std::exception& error) {
    comm::life().fail(error.what());
    throw;
  }
}

}  // namespace tessera::train
