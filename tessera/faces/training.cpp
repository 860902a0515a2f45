#include <tessera/faces/training.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/comm/life.h>
#include <tessera/comm/world.h>
#include <tessera/optim/norm.h>
#include <tessera/train/loop/optimization.h>
#include <tessera/train/loop/sharding.h>

namespace tessera::faces {

Training::Training(std::shared_ptr<torch::nn::Module> module, RunConfig config, std::int64_t accumulation,
                   const MakeUpdate& make_update, comm::Group group)
    : module_(std::move(module)),
      config_(std::move(config)),
      group_(group ? std::move(group) : world().group()),
      accumulation_(accumulation) {
  if (const auto scale = train::make_loss_scale(config_.optimization))
    loss_scale_ = std::make_shared<optim::LossScale>(*scale);
  if (!module_) throw InputError("the module to train is a null pointer");
  if (accumulation_ < 1)
    throw InputError(concat("gradient_accumulation_steps is ", accumulation_, ", must be at least 1"));
  if (config_.optimization.gradient_checkpointing && group_.rank() == 0)
    log::warning(
        "gradient_checkpointing has no effect on a module of your own: call tessera::checkpointed() in its forward");
  ParallelConfig& parallel = config_.parallel;
  if (parallel.deterministic_reduce && parallel.logical_shards == 0)
    parallel.logical_shards = group_.size() * accumulation_;
  module_->to(group_.device());
  ShardingOptions options = train::sharding_options(config_, *module_, group_);
  options.reduction = comm::Reduction::mean;
  sharded_.emplace(*module_, std::move(options));
  update_ = make_update(*module_, *sharded_);
}

std::optional<at::ScalarType> Training::narrow() const {
  if (config_.sharding.param_dtype != FloatType::fp32)
    return std::nullopt;  // parameters are gathered in the narrow type
  if (config_.optimization.bf16) return at::kBFloat16;
  return config_.optimization.fp16 ? std::optional(at::kHalf) : std::nullopt;
}

at::Tensor Training::widen(const at::Tensor& output) {
  const bool narrow = output.defined() && (output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16);
  return narrow ? output.to(at::kFloat) : output;
}

void Training::expect_step(bool is_last) {
  if (is_last || fixed_order())
    pause_.reset();
  else if (!pause_)
    pause_.emplace(*sharded_);
}

void Training::backward(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1)
    throw InputError(
        concat("backward: the loss has ", loss.defined() ? loss.numel() : 0, " elements; give its mean, one number"));
  // in fixed order the reduction divides by all micro-batches of all ranks
  const double scale =
      (fixed_order() ? 1.0 : 1.0 / static_cast<double>(accumulation_)) * (loss_scale_ ? loss_scale_->scale() : 1.0);
  (scale == 1 ? loss : widen(loss) * scale).backward();
  gradients_changed();
  comm::life().advance();
}

void Training::rescale_gradients(double factor) {
  sharded_->scale_gradients(factor);
  gradients_changed();
}

double Training::gradient_norm() {
  if (!scaled_norm_) scaled_norm_ = sharded_->grad_norm();
  return *scaled_norm_ * (loss_scale_ ? loss_scale_->gradient_factor() : 1.0);
}

double Training::clip(double max_norm) {
  const double norm = gradient_norm();
  clip_by(norm, max_norm);
  return norm;
}

void Training::clip_by(double norm, double max_norm) {
  if (std::isfinite(norm))
    clip_ = optim::clip_coefficient(norm, max_norm);
  else if (!loss_scale_)
    sharded_->clip_grad_norm(0);  // where these are not finite, throws, and tells where it comes from
}

bool Training::step() {
  double factor = std::exchange(clip_, 1.0);
  if (loss_scale_) {
    gradient_norm();
    factor *= loss_scale_->gradient_factor();
    if (!loss_scale_->update(*scaled_norm_)) {
      scaled_norm_.reset();
      return false;
    }
  }
  scaled_norm_.reset();
  update_->step(factor);
  if (const auto& compression = sharded_->options().compression) compression->step_done();
  return true;
}

void Training::zero_grad() {
  sharded_->zero_grad();
  scaled_norm_.reset();
}

void Training::set_schedule(RateSchedule schedule) {
  schedule_ = std::move(schedule);
  set_schedule_steps(schedule_steps_);
}

void Training::step_schedule() { set_schedule_steps(schedule_steps_ + 1); }

void Training::set_schedule_steps(std::int64_t steps) {
  schedule_steps_ = steps;
  if (schedule_.rate) update_->set_learning_rates([&](double base) { return schedule_.rate(steps, base); });
  if (schedule_.betas)
    if (const auto betas = schedule_.betas(steps)) update_->set_betas(*betas);
}

RateSchedule rate_schedule(optim::Schedule schedule) {
  optim::check_schedule(schedule);
  const auto rate = [schedule](std::int64_t steps, double base) {
    optim::Schedule own = schedule;
    own.learning_rate = base;
    return optim::schedule_rate(own, steps);
  };
  return {rate, [schedule](std::int64_t steps) { return optim::schedule_betas(schedule, steps); }};
}

RateSchedule configured_schedule(const OptimizationConfig& config, std::int64_t total_steps) {
  static const std::vector<std::string> ending = {
      "linear", "cosine", "cosine_with_restarts", "cosine_with_min_lr", "polynomial", "warmup_stable_decay"};
  if (total_steps <= 0 && std::find(ending.begin(), ending.end(), config.lr_scheduler_type) != ending.end())
    throw InputError(concat("lr_scheduler_type ", config.lr_scheduler_type,
                            " needs the number of steps of the run: give --max_steps"));
  if (config.lr_scheduler_type == "reduce_lr_on_plateau")
    throw InputError(
        "lr_scheduler_type reduce_lr_on_plateau follows evaluations, which only tessera::Trainer and tessera train "
        "make: "
        "take another schedule");
  train::RunPlan plan;
  plan.total_steps = total_steps;
  plan.warmup_steps = config.warmup_steps;
  if (plan.warmup_steps == 0 && config.warmup_ratio > 0)
    plan.warmup_steps = static_cast<std::int64_t>(std::ceil(static_cast<double>(total_steps) * config.warmup_ratio));
  return rate_schedule(train::make_schedule(config, plan));
}

comm::World& ensure_world(const RunConfig& config) {
  if (initialized()) return world();
  InitOptions options;
  options.backend = config.parallel.backend;
  options.device = config.device;
  options.timeout_seconds = config.parallel.ddp_timeout;
  return init(options);
}

}  // namespace tessera::faces
