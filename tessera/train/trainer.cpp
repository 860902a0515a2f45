#include <tessera/train/trainer.h>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <tessera/comm/recorder.h>
#include <tessera/comm/world.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
#include <tessera/train/evaluate.h>
#include <tessera/train/metrics.h>
#include <tessera/train/output.h>
#include <tessera/train/progress.h>
#include <tessera/train/random_key.h>
#include <tessera/train/setup.h>
#include <tessera/train/signals.h>
#include <tessera/train/summary.h>
#include <tessera/train/unigram.h>

namespace tessera::train {
namespace {

constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizationConfig& config, const models::CausalLm& model,
                                                 const Ddp& ddp) {
  std::vector<optim::Slot> slots;
  for (const auto& [name, parameter] : ddp.parameters())
    slots.push_back({name, parameter, model.is_norm_or_bias(name) ? 0.0 : config.weight_decay, 1.0});
  if (config.optim == "sgd") return optim::make_sgd(std::move(slots), {config.momentum, false});
  return optim::make_adamw(std::move(slots), {config.adam_beta1, config.adam_beta2, config.adam_epsilon});
}

void restore_optimizer(optim::Optimizer& optimizer, const checkpoint::RunState& saved, const std::string& folder) {
  auto state = optimizer.state();
  std::size_t restored = 0;
  for (const auto& [name, tensor] : saved.optimizer) {
    for (auto& [own_name, own] : state) {
      if (own_name != name) continue;
      if (own.sizes() != tensor.sizes())
        throw InputError(concat(folder, ": optimizer state ", name, " has another shape than this model's"));
      own.copy_(tensor);
      ++restored;
    }
  }
  if (restored != state.size() || restored != saved.optimizer.size())
    throw InputError(concat(folder, ": the checkpoint holds ", saved.optimizer.size(), " optimizer tensors, of which ",
                            restored, " are among the ", state.size(),
                            " of this run: resume with the same --optim and model"));
  optimizer.set_steps(saved.optimizer_steps);
}

class Trainer {
 public:
  Trainer(Setup setup, const Value& configuration);
  ExitCode run();

 private:
  /// What the ranks tell each other before every step.
  struct Agreement {
    std::int64_t scored_tokens = 0;
    StopRequest stop = StopRequest::none;
  };

  std::vector<data::Batch> read_step() const;
  Agreement agree_on_step(const std::vector<data::Batch>& batches) const;
  void compute_gradients(const std::vector<data::Batch>& batches, std::int64_t scored_tokens);
  void update_weights();
  void count_step(double seconds);
  void log();
  void evaluate();
  void save();
  ExitCode finish(StopRequest stop);
  void write_report(const std::string& prompt = "", const std::string& sample = "");

  checkpoint::RunState run_state() const;
  double seconds_left() const;

  Setup setup_;
  const Value& configuration_;
  comm::World& world_;
  const RunPlan& plan_;
  Ddp ddp_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  StopSignals signals_;
  Progress progress_;
  std::optional<OutputFolder> output_;  // rank 0

  std::int64_t step_ = 0;  // done
  std::int64_t saved_step_ = -1;
  double grad_norm_ = 0, learning_rate_ = 0;
  // Since the last log: this rank's sums.
  double loss_sum_ = 0;
  std::int64_t scored_tokens_ = 0;
  std::int64_t window_steps_ = 0;
  double window_seconds_ = 0;
  double window_cpu_seconds_ = 0;
  // Since the start of this process.
  double train_seconds_ = 0;
  double step_seconds_ = 0;  // smoothed, for the time left
  StepMetrics last_log_;
  RunTotals totals_;
  std::int64_t started_ns_ = 0;
  std::vector<Value> log_history_;
};

Trainer::Trainer(Setup setup, const Value& configuration)
    : setup_(std::move(setup)),
      configuration_(configuration),
      world_(world()),
      plan_(setup_.plan),
      ddp_(*setup_.model, {.group = world_.group(),
                           .bucket_mb = setup_.config.parallel.ddp_bucket_cap_mb,
                           .reduction = comm::Reduction::sum,
                           .find_unused_parameters = setup_.config.parallel.ddp_find_unused_parameters,
                           .broadcast_buffers = setup_.config.parallel.ddp_broadcast_buffers}),
      optimizer_(make_optimizer(setup_.config.optimization, *setup_.model, ddp_)),
      schedule_{setup_.config.optimization.lr_scheduler_type, plan_.warmup_steps, plan_.total_steps},
      progress_(world_.rank() != 0, setup_.config.output.disable_tqdm),
      step_(plan_.resumed_step) {
  last_log_.loss = not_known;
  agree(world_.group(), [&] {
    if (setup_.resume) restore_optimizer(*optimizer_, *setup_.resume, setup_.resume_folder);
  });
  if (setup_.resume) log_history_ = setup_.resume->log_history;
  agree(world_.group(), [&] {  // the first thing that is written
    if (world_.rank() == 0) output_.emplace(setup_);
  });
}

ExitCode Trainer::run() {
  for (const std::string& line : describe_start(setup_, world_)) progress_.note(line);
  if (output_) totals_.unigram_entropy = unigram_entropy(*setup_.datasets.train, setup_.model->vocab_size());
  totals_.startup_seconds = seconds_since_process_start();
  started_ns_ = comm::monotonic_ns();
  setup_.model->train();

  while (step_ < plan_.total_steps) {
    const std::int64_t begin_ns = comm::monotonic_ns();
    const double begin_cpu = process_cpu_seconds();
    const std::vector<data::Batch> batches = read_step();
    const Agreement agreed = agree_on_step(batches);
    if (agreed.stop != StopRequest::none) return finish(agreed.stop);

    compute_gradients(batches, agreed.scored_tokens);
    update_weights();
    ++step_;
    window_cpu_seconds_ += process_cpu_seconds() - begin_cpu;
    count_step(static_cast<double>(comm::monotonic_ns() - begin_ns) * 1e-9);

    if (plan_.logs_after(step_)) log();
    if (plan_.evaluates_after(step_)) evaluate();
    if (plan_.saves_after(step_)) save();
  }
  return finish(StopRequest::none);
}

/// This rank's micro-batches of the next step.
std::vector<data::Batch> Trainer::read_step() const {
  const data::Sampler sampler(setup_.config.data.train_sampling_strategy, setup_.datasets.train->size(),
                              static_cast<std::uint64_t>(setup_.config.optimization.seed));
  std::vector<data::Batch> batches;
  for (std::int64_t micro = 0; micro < plan_.accumulation; ++micro)
    batches.push_back(data::make_batch(*setup_.datasets.train, sampler, plan_.first_row(step_, micro, world_.rank()),
                                       plan_.batch_size));
  return batches;
}

/// The number of scored tokens of the whole step, which the loss is divided by, and whether anyone was asked to stop.
Trainer::Agreement Trainer::agree_on_step(const std::vector<data::Batch>& batches) const {
  const comm::Tag tag("step");
  std::int64_t scored = 0;
  for (const data::Batch& batch : batches) scored += batch.scored_tokens;
  const StopRequest asked = signals_.requested();
  at::Tensor all =
      at::tensor({scored, std::int64_t{asked == StopRequest::terminate}, std::int64_t{asked == StopRequest::interrupt}},
                 at::kLong)
          .to(world_.device());  // [3]
  world_.group().all_reduce(all).wait();
  all = all.cpu();
  const auto* sums = all.data_ptr<std::int64_t>();
  if (sums[0] == 0) throw Error(concat("step ", step_ + 1, ": no token of the batch is scored (all labels are -100)"));
  return {sums[0], sums[2] > 0 ? StopRequest::interrupt : sums[1] > 0 ? StopRequest::terminate : StopRequest::none};
}

/// Forward and backward of each micro-batch. The loss of the step is the mean over its scored tokens, wherever they
/// are, so each share is divided by the count of all ranks and micro-batches, and the reduction is a sum. The last
/// backward reduces.
void Trainer::compute_gradients(const std::vector<data::Batch>& batches, std::int64_t scored_tokens) {
  const double scale = 1.0 / static_cast<double>(scored_tokens);
  ddp_.zero_grad();
  for (std::size_t micro = 0; micro < batches.size(); ++micro) {
    const data::Batch& batch = batches[micro];
    std::optional<Ddp::NoSync> only_here;
    if (micro + 1 < batches.size()) only_here.emplace(ddp_);
    key_random_numbers(world_.device(), static_cast<std::uint64_t>(setup_.config.optimization.seed), step_,
                       plan_.first_row(step_, static_cast<std::int64_t>(micro), world_.rank()));
    const at::Tensor loss = setup_.model->loss(batch.ids.to(world_.device()), batch.labels.to(world_.device()), scale);
    loss.backward();
    loss_sum_ += loss.item<double>() / scale;
    scored_tokens_ += batch.scored_tokens;
  }
}

/// Clipping and the optimizer step in one pass over the gradients.
void Trainer::update_weights() {
  const auto& config = setup_.config.optimization;
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : ddp_.parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  grad_norm_ = optim::gradient_norm(gradients);
  if (!std::isfinite(grad_norm_)) {
    if (world_.rank() != 0) throw FailedElsewhere(ExitCode::failed);  // every rank has the same norm; one tells it
    throw Error(concat("step ", step_ + 1, ": the gradient norm is ", format_real(grad_norm_),
                       ": the training diverged. Lower --learning_rate (now ", format_real(config.learning_rate),
                       "), add --warmup_steps, or clip with --max_grad_norm; the last checkpoint is unharmed"));
  }
  learning_rate_ = config.learning_rate * optim::schedule_factor(schedule_, step_);
  optimizer_->step(learning_rate_, optim::clip_coefficient(grad_norm_, config.max_grad_norm));
}

void Trainer::count_step(double seconds) {
  ++window_steps_;
  window_seconds_ += seconds;
  train_seconds_ += seconds;
  step_seconds_ = step_seconds_ == 0 || step_ <= plan_.resumed_step + 2 ? seconds : 0.9 * step_seconds_ + 0.1 * seconds;
  if (progress_.mode() != Progress::Mode::terminal) return;
  const double tokens = static_cast<double>(plan_.rows_per_step() * setup_.block_size);
  const double loss = std::isfinite(last_log_.loss) ? last_log_.loss : loss_sum_ / static_cast<double>(scored_tokens_);
  progress_.step(
      {step_, plan_.total_steps, loss, learning_rate_, tokens / step_seconds_, peak_resident_bytes(), seconds_left()});
}

double Trainer::seconds_left() const { return step_seconds_ * static_cast<double>(plan_.total_steps - step_); }

/// One collective brings every rank's sums together; they are added in rank order.
void Trainer::log() {
  const comm::Tag tag("log");
  constexpr int fields = 4;
  const int ranks = world_.size();
  at::Tensor mine = at::empty({fields}, at::kDouble);
  mine.data_ptr<double>()[0] = loss_sum_;
  mine.data_ptr<double>()[1] = static_cast<double>(scored_tokens_);
  mine.data_ptr<double>()[2] = static_cast<double>(peak_resident_bytes());
  mine.data_ptr<double>()[3] = window_cpu_seconds_;
  at::Tensor all = at::empty({ranks * fields}, at::TensorOptions().dtype(at::kDouble).device(world_.device()));
  world_.group().all_gather(all, mine.to(world_.device())).wait();
  all = all.cpu();

  StepMetrics metrics;
  double loss_sum = 0, scored = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* row = all.data_ptr<double>() + rank * fields;
    loss_sum += row[0];
    scored += row[1];
    metrics.memory_by_rank.push_back(static_cast<std::int64_t>(row[2]));
    metrics.cpu_seconds += row[3] / static_cast<double>(window_steps_);
  }
  const double tokens = static_cast<double>(window_steps_ * plan_.rows_per_step() * setup_.block_size);
  metrics.step = step_;
  metrics.loss = loss_sum / scored;
  metrics.grad_norm = grad_norm_;
  metrics.learning_rate = learning_rate_;
  metrics.epoch = plan_.epoch(step_);
  metrics.tokens_per_second = tokens / window_seconds_;
  metrics.step_time_ms = 1000 * window_seconds_ / static_cast<double>(window_steps_);
  metrics.wall_time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  loss_sum_ = 0;
  scored_tokens_ = 0;
  window_steps_ = 0;
  window_seconds_ = 0;
  window_cpu_seconds_ = 0;

  last_log_ = metrics;
  log_history_.push_back(hf_log_entry(metrics));
  if (output_) output_->metrics().append(to_json(metrics));
  progress_.logged(metrics, plan_.total_steps, seconds_left());
}

void Trainer::evaluate() {
  EvalMetrics metrics = train::evaluate(*setup_.model, *setup_.datasets.validation,
                                        setup_.config.optimization.per_device_eval_batch_size, world_.group());
  metrics.step = step_;
  metrics.epoch = plan_.epoch(step_);
  totals_.has_eval = true;
  totals_.eval_loss = metrics.loss;
  log_history_.push_back(hf_log_entry(metrics));
  progress_.note(describe(metrics));
  if (!output_) return;
  output_->metrics().append(to_json(metrics));
  write_report();
}

void Trainer::save() {
  saved_step_ = step_;
  if (!output_) return;
  const std::string folder = output_->save_checkpoint(setup_, run_state());
  progress_.note(concat("saved ", folder));
  write_report();
}

checkpoint::RunState Trainer::run_state() const {
  const OptimizationConfig& optimization = setup_.config.optimization;
  checkpoint::RunState state;
  state.step = step_;
  state.samples = plan_.samples(step_);
  state.seed = static_cast<std::uint64_t>(optimization.seed);
  state.log_history = log_history_;
  state.optimizer_steps = optimizer_->steps();
  state.optimizer = optimizer_->state();
  state.epoch = plan_.epoch(step_);
  state.max_steps = plan_.total_steps;
  state.num_train_epochs = optimization.num_train_epochs;
  state.train_batch_size = optimization.per_device_train_batch_size;
  state.logging_steps = plan_.logging_steps;
  state.eval_steps = plan_.eval_every;
  state.save_steps = plan_.save_every;
  state.num_input_tokens_seen = state.samples * setup_.block_size;
  return state;
}

/// The end of the loop, whatever led to it.
ExitCode Trainer::finish(StopRequest stop) {
  if (window_steps_ > 0) log();  // an early stop between two logs
  if (stop == StopRequest::terminate && saved_step_ != step_) save();
  if (output_) {
    std::string prompt, sample;
    if (stop == StopRequest::none) {
      output_->save_model(setup_, run_state());
      std::tie(prompt, sample) = sample_text(setup_);
    }
    const std::int64_t tokens = (step_ - plan_.resumed_step) * plan_.rows_per_step() * setup_.block_size;
    totals_.steps = step_;
    totals_.epoch = plan_.epoch(step_);
    totals_.tokens = tokens;
    totals_.seconds = static_cast<double>(comm::monotonic_ns() - started_ns_) * 1e-9;
    totals_.loss = last_log_.loss;
    totals_.tokens_per_second = train_seconds_ > 0 ? static_cast<double>(tokens) / train_seconds_ : 0;
    totals_.flops_per_second = totals_.tokens_per_second * setup_.model->flops_per_token(setup_.block_size);
    totals_.peak_memory_bytes = std::max(last_log_.peak_memory_bytes(), peak_resident_bytes());
    totals_.reason = stop == StopRequest::none ? "done" : stop == StopRequest::terminate ? "terminated" : "interrupted";
    output_->metrics().append(to_json(totals_));
    write_report(prompt, sample);
    progress_.close();
    for (const std::string& line : describe_end(setup_, totals_, output_->path("report.html"))) progress_.note(line);
  }
  if (stop == StopRequest::none) return ExitCode::done;
  return stop == StopRequest::terminate ? ExitCode::stopped : ExitCode::interrupted;
}

void Trainer::write_report(const std::string& prompt, const std::string& sample) {
  Report report = describe_run(setup_, world_);
  report.metrics = output_->metrics().lines();
  report.configuration = configuration_;
  report.communication = communication_table();
  report.unigram_entropy = totals_.unigram_entropy;
  report.sample_prompt = prompt;
  report.sample_text = sample;
  output_->write_report(report);
}

}  // namespace

ExitCode train(const RunConfig& config, const Value& resolved) {
  comm::World& ranks = world();
  set_threads(config.parallel.threads_per_process, ranks.local_size());
  Setup setup;
  agree(ranks.group(), [&] { setup = prepare(config, ranks); });
  return Trainer(std::move(setup), resolved).run();
}

}  // namespace tessera::train
