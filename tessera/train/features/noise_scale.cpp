#include <tessera/base/error.h>
#include <tessera/config/core/run_config.h>
#include <tessera/train/features/noise_scale.h>
#include <tessera/train/features/run_feature.h>

#include <cmath>

namespace tessera::train {

NoiseEstimate noise_estimate(double n_small, double small, double n_big, double big) {
  return {.squared_norm = (big * n_big - small * n_small) / (big - small),
          .trace = (n_small - n_big) / (1 / small - 1 / big)};
}

void SmallBatches::begin_step(double share) {
  *this = SmallBatches();
  share_ = share;
}

void SmallBatches::add_rows(std::int64_t rows, std::int64_t scored_tokens) {
  rows_ += rows;
  tokens_ += scored_tokens;
}

void SmallBatches::end_backward() {
  if (!seen_) return;
  // the gradient is that of the mean loss, multiplied by this factor
  const double tokens = static_cast<double>(tokens_) * share_;
  if (tokens > 0) weighted_ += static_cast<double>(rows_) * squares_ / (tokens * tokens);
  counted_rows_ += rows_;
  ++count_;
  rows_ = tokens_ = 0;
  squares_ = 0;
  seen_ = false;
}

void NoiseScale::add(const NoiseEstimate& sums, std::int64_t steps) {
  if (steps < 1 || !std::isfinite(sums.squared_norm) || !std::isfinite(sums.trace)) return;
  const double kept = weight_ * std::pow(decay, steps), all = kept + static_cast<double>(steps);
  average_.squared_norm = (kept * average_.squared_norm + sums.squared_norm) / all;
  average_.trace = (kept * average_.trace + sums.trace) / all;
  weight_ = all;
}

std::optional<double> NoiseScale::rows() const {
  if (weight_ <= 0 || average_.squared_norm <= 0 || average_.trace <= 0) return std::nullopt;
  return average_.trace / average_.squared_norm;
}

namespace {

class NoiseScaleFeature : public MicroBatchFeature {
 public:
  std::string acts_on(const models::LanguageModel&) const override { return "--gradient_noise_scale"; }
  void prepare_model(ModelBuild& build) override {
    if (build.groups.gradients.size() > 1)
      build.parts.before_reduction = [this](const at::Tensor& flat) { add_squares(flat.norm().item<double>()); };
  }
  void divided(const RunContext& run) override {
    run_ = &run;
    const bool cuts = run.groups.cuts() || run.groups.expert_ranks() > 1;
    if (!cuts && run.groups.data.size() == 1 && run.plan.micro_batches(run.plan.resumed_step) < 2)
      throw InputError(
          "--gradient_noise_scale compares the gradients of small batches with that of the whole step, but one process "
          "with one micro-batch has no smaller batch: use --gradient_accumulation_steps 2 or more, or more processes");
  }
  void begin_step(const StepStart& start) override {
    small_.begin_step(start.scale);
    is_first_ = true;
  }
  void begin_micro_batch(const data::Batch& batch) override {
    if (batch.counts) small_.add_rows(batch.ids.size(0), batch.scored_tokens);
  }
  /// A single process does not reduce gradients, so its first micro-batch is the small batch.
  void after_backward() override {
    if (run_->groups.gradients.size() == 1 && is_first_) add_squares(run_->sharded.grad_norm());
    is_first_ = false;
    small_.end_backward();
  }
  bool reads_outcome() const override { return true; }
  void after_step(const StepEnd& end) override {
    last_rows_ = run_->plan.rows_of_step(end.step - 1);
    if (std::isfinite(end.grad_norm) && small_.count() > 0) add_step(end.step - 1, end.grad_norm);
    ++steps_;
  }
  void log(LogSums& sums) override {
    sums.add({sums_.squared_norm, sums_.trace}, [this](StepMetrics& metrics, const double* all) {
      const auto steps = static_cast<double>(steps_);
      noise_.add({all[0], all[1]}, steps_);
      metrics.noise = {
          .measured = true, .squared_norm = all[0] / steps, .trace = all[1] / steps, .scale = noise_.rows()};
      metrics.rows = last_rows_;
      sums_ = {};
      steps_ = 0;
    });
  }

 private:
  void add_squares(double norm) { small_.add_squares(norm * norm); }
  /// This rank's contribution to a step's estimates, which are sums over ranks; rank 0 contributes the norm of the
  /// whole step.
  void add_step(std::int64_t step, double grad_norm) {
    const RunPlan& plan = run_->plan;
    const int ranks = run_->groups.gradients.size();
    const auto big = static_cast<double>(plan.rows_of_step(step));
    const double rows = ranks == 1 ? static_cast<double>(small_.rows()) : big;
    // The small batches of all ranks: micro-batches if each backward reduces, otherwise one batch per rank.
    const bool each_reduces = small_.count() > 1;
    const std::int64_t of_data = each_reduces ? plan.micro_batches_with_rows(step) : plan.ranks_with_rows(step);
    const double batches = ranks == 1 ? static_cast<double>(small_.count())
                                      : static_cast<double>(ranks * of_data) / static_cast<double>(plan.data_ranks);
    const double small = rows / batches;
    if (small >= big) return;
    const NoiseEstimate own =
        noise_estimate(small_.weighted() / rows, small, run_->world.rank() == 0 ? grad_norm * grad_norm : 0, big);
    sums_.squared_norm += own.squared_norm;
    sums_.trace += own.trace;
  }

  const RunContext* run_ = nullptr;
  SmallBatches small_;  // this rank's small batches in the current step
  bool is_first_ = true;
  NoiseEstimate sums_;  // this rank's sums since the last log
  NoiseScale noise_;
  std::int64_t steps_ = 0, last_rows_ = 0;
};

}  // namespace

std::unique_ptr<RunFeature> make_noise_scale(const RunConfig& config) {
  return config.optimization.gradient_noise_scale ? std::make_unique<NoiseScaleFeature>() : nullptr;
}

}  // namespace tessera::train
