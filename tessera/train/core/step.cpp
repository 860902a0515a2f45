#include <tessera/train/core/step.h>

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include <tessera/comm/heartbeat.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/record/former_settings.h>
#include <tessera/optim/norm.h>
#include <tessera/train/core/compression_state.h>
#include <tessera/train/saving/tensor_parts.h>

namespace tessera::train {

Sharded& StepCore::divide(std::shared_ptr<torch::nn::Module> module, ShardingOptions options,
                          const std::optional<optim::LossScale>& loss_scale) {
  module_ = std::move(module);
  if (loss_scale) loss_scale_ = std::make_shared<optim::LossScale>(*loss_scale);
  return sharded_.emplace(*module_, std::move(options));
}

void StepCore::expect_step(bool is_last) {
  if (is_last || sharded_->options().logical_shards > 0)
    pause_.reset();
  else if (!pause_)
    pause_.emplace(*sharded_);
}

void StepCore::backward(const at::Tensor& loss) {
  loss.backward();
  gradients_changed();
  comm::heartbeat().advance();
}

void StepCore::rescale_gradients(double factor) {
  sharded_->scale_gradients(factor);
  gradients_changed();
}

double StepCore::gradient_norm() {
  if (!scaled_norm_) scaled_norm_ = update_ ? update_->gradient_norm() : std::nullopt;
  if (!scaled_norm_) scaled_norm_ = sharded_->grad_norm();
  return *scaled_norm_ * gradient_factor();
}

double StepCore::clip(double max_norm) {
  const double norm = gradient_norm();
  clip_by(norm, max_norm);
  return norm;
}

void StepCore::clip_by(double norm, double max_norm) {
  if (std::isfinite(norm))
    clip_ = optim::clip_coefficient(norm, max_norm);
  else if (!loss_scale_)
    sharded_->clip_grad_norm(0);  // throws an error that names the source of the non-finite gradients
}

void StepCore::clip_values(double limit) {
  if (loss_scale_ && !std::isfinite(gradient_norm())) return;
  sharded_->clip_grad_value(limit * loss_factor() / clip_);  // step() applies both factors later
  scaled_norm_.reset();
}

bool StepCore::step() {
  const double factor = std::exchange(clip_, 1.0) * gradient_factor();
  bool taken = true;
  if (loss_scale_) {
    gradient_norm();
    taken = loss_scale_->update(*scaled_norm_);
  }
  if (taken) update_->step(factor);
  end_step();
  return taken;
}

bool StepCore::steps_late() {
  if (loss_scale_ || world().device().is_cpu()) return false;
  if (!steps_late_) steps_late_ = !comm::any_rank(world().group(), !update_->takes_step_scalars());
  return *steps_late_;
}

nn::LateNumber StepCore::step_late(double max_norm) {
  const at::Tensor scalars = sharded_->step_scalars(max_norm);
  update_->step_by(scalars);
  end_step();
  return nn::LateNumber(scalars[0]);
}

void StepCore::end_step() {
  scaled_norm_.reset();
  clip_ = 1;
  if (const auto& compression = sharded_->options().compression) compression->step_done();
}

void StepCore::zero_grad() {
  sharded_->zero_grad();
  scaled_norm_.reset();
}

void StepCore::set_schedule(RateSchedule schedule) {
  schedule_ = std::move(schedule);
  set_schedule_steps(schedule_steps_);
}

void StepCore::set_schedule(const optim::Schedule& schedule, const std::optional<optim::Schedule>& of_embeddings) {
  std::vector<double> bases;
  update_->set_learning_rates([&](double base, std::size_t) { return bases.emplace_back(base); });
  RateSchedule rates = rate_schedule(schedule, bases);
  if (of_embeddings) rates.of_embeddings = rate_schedule(*of_embeddings).rate;
  set_schedule(std::move(rates));
}

void StepCore::scale_rates(std::function<double(std::int64_t)> factor) {
  rate_factor_ = std::move(factor);
  set_schedule_steps(schedule_steps_);
}

void StepCore::set_schedule_steps(std::int64_t steps) {
  schedule_steps_ = steps;
  const double factor = rate_factor_ ? rate_factor_(steps) : 1;
  if (schedule_.rate)
    update_->set_learning_rates([&](double base, std::size_t group) {
      return factor * (group > 0 && schedule_.of_embeddings ? schedule_.of_embeddings : schedule_.rate)(steps, base);
    });
  if (schedule_.betas)
    if (const auto betas = schedule_.betas(steps)) moves_betas_ = update_->set_betas(*betas);
}

void StepCore::evaluated(double metric) {
  if (!schedule_.plateau) return;
  schedule_.plateau->update(metric);
  set_schedule_steps(schedule_steps_);
}

checkpoint::ModelState StepCore::state() const {
  checkpoint::ModelState state{.optimizer_steps = update_->steps(), .schedule_steps = schedule_steps_};
  if (schedule_.plateau) state.schedule = schedule_.plateau->state();
  if (loss_scale_) state.loss_scale = loss_scale_->state();
  return state;
}

void StepCore::restore(const checkpoint::ModelState& state, const std::string& folder,
                       const std::shared_ptr<format::ReadSums>& sums, const std::string& stem) {
  update_->restore(*sharded_, state.optimizer_steps, folder, sums, stem);
  restore_compression(*sharded_, world().group(), folder, stem);
  if (loss_scale_ && state.loss_scale) loss_scale_->set_state(*state.loss_scale);
  if (schedule_.plateau && !state.schedule.is_null()) schedule_.plateau->set_state(state.schedule);
  set_schedule_steps(state.schedule_steps);
}

SavedModel StepCore::saved_model() const {
  return {.sharded = &*sharded_, .states = update_->states(*sharded_), .of_rank = [this](const std::string& stem) {
            return compression_state(*sharded_, world().group(), stem);
          }};
}

void StepCore::write_to(checkpoint::RunState& state, const RunConfig& config) const {
  state.models = {this->state()};
  state.seed = static_cast<std::uint64_t>(config.optimization.seed);
  state.configuration = config::stored_configuration(config);
  const comm::Group tensor = tensor_group(*sharded_);
  const comm::Group& stages = sharded_->options().stages;
  state.mesh = {.ranks = sharded_->shard_ranks() * sharded_->replicate_ranks() * (tensor ? tensor.size() : 1) *
                         (stages ? stages.size() : 1),
                .strategy = std::string(word_of(config.sharding.strategy)),
                .shard_ranks = sharded_->shard_ranks(),
                .replicate_ranks = sharded_->replicate_ranks()};
}

}  // namespace tessera::train
