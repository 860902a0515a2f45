#include <tessera/train/features/predictions.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/train/features/run_feature.h>

#include <string>
#include <utility>

namespace tessera::train {

void set_up_predictions(models::LanguageModel& model, const OptimizationConfig& config, const RunGroups& groups) {
  const double weight = config.mtp_loss_scaling_factor;
  if (model.prediction_depths() == 0) {
    if (weight == OptimizationConfig().mtp_loss_scaling_factor || weight == 0) return;
    throw InputError(concat("--mtp_loss_scaling_factor ", format_real(weight),
                            " is for models with multi-token prediction, and this one, of type \"",
                            model.hf_config().at("model_type").as_string(),
                            "\", has none: remove it, or set mtp_num_layers in its config.json (for a new "
                            "model: --config_overrides mtp_num_layers=1)"));
  }
  model.set_prediction_weight(weight);
  if (weight == 0) return model.freeze_predictions();
  const char* const remedy = ", or train without multi-token prediction: --mtp_loss_scaling_factor 0";
  if (groups.context_ranks() > 1)
    throw InputError(
        concat("--cp_size ", groups.context_ranks(),
               " contradicts mtp_num_layers: multi-token prediction reads tokens further ahead in the same "
               "row, which are on other processes; use --cp_size 1",
               remedy));
  if (config.preference_loss != PreferenceLoss::none)
    throw InputError(
        concat("--preference_loss contradicts mtp_num_layers: preference losses compare whole answers and do "
               "not use multi-token prediction; remove --preference_loss",
               remedy));
}

void PredictionWindow::add(const std::vector<at::Tensor>& losses, double factor) {
  if (sums_.size() < losses.size()) sums_.resize(losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) sums_[i] += losses[i].item<double>() * factor;
}

std::vector<double> PredictionWindow::take(const models::LanguageModel& model) {
  std::vector<double> sums = std::exchange(sums_, {});
  sums.resize(static_cast<std::size_t>(model.prediction_depths()));
  return sums;
}

namespace {

class PredictionsFeature : public MicroBatchFeature {
 public:
  std::string acts_on(const models::LanguageModel& model) const override {
    return model.prediction_depths() > 0 ? "prediction of further tokens (multi-token prediction)" : "";
  }
  void prepare_model(ModelBuild& build) override {
    set_up_predictions(build.model, build.config.optimization, build.groups);
  }
  void divided(const RunContext& run) override { run_ = &run; }
  void begin_step(const StepStart& start) override {
    run_->model->take_prediction_losses();  // discards the losses of a trial before the first step
    loss_factor_ = start.loss_factor;
    ++steps_;
  }
  /// Ranks of tp have the same losses; in a pipeline only the last stage's rank has them.
  void after_backward() override {
    window_.add(run_->model->take_prediction_losses(), 1 / (loss_factor_ * run_->groups.tensor_ranks()));
  }
  void log(LogSums& sums) override {
    const std::vector<double> own = window_.take(*run_->model);
    const auto steps = static_cast<double>(std::exchange(steps_, 0));
    const bool shown = run_->config.optimization.mtp_loss_scaling_factor > 0;
    sums.add(own, [=, count = own.size()](StepMetrics& metrics, const double* all) {
      for (std::size_t i = 0; shown && i < count; ++i) metrics.predictions.push_back(all[i] / steps);
    });
  }

 private:
  const RunContext* run_ = nullptr;
  PredictionWindow window_;
  std::int64_t steps_ = 0;  // sums since the last log
  double loss_factor_ = 1;
};

}  // namespace

std::unique_ptr<RunFeature> make_predictions(const RunConfig&) { return std::make_unique<PredictionsFeature>(); }

}  // namespace tessera::train
