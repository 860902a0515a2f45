#include <tessera/train/features/preferences.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/checkpoint/peft.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/long_phase.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/rules/validate_preferences.h>
#include <tessera/data/pairs.h>
#include <tessera/data/to_device.h>
#include <tessera/models/causal_lm.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/load.h>
#include <tessera/nn/autocast.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/features/run_feature.h>
#include <tessera/train/loss/preference.h>

namespace tessera::train {
namespace {

models::CausalLm& causal(models::LanguageModel& model) {
  auto* const causal = dynamic_cast<models::CausalLm*>(&model);
  TESSERA_CHECK(causal != nullptr, "pairs of answers need a causal model");
  return *causal;
}

/// Number of scored tokens per row: double [rows].
at::Tensor tokens_of(const at::Tensor& labels) {
  return labels.slice(1, 1).ne(data::not_scored).sum(1).to(at::kDouble);
}

/// Folder of the model to read as the reference; empty with `read` true: config_name's model, newly initialized.
struct Origin {
  bool read = false;
  std::string folder;
};
Origin origin_of(const RunContext& run) {
  const ModelConfig& model = run.config.model;
  if (!model.ref_model_name_or_path.empty()) return {true, model.ref_model_name_or_path};
  const std::string& folder = model.model_name_or_path;
  if (!folder.empty() && checkpoint::is_adapter_folder(folder))
    return {true, checkpoint::base_model_folder(folder, checkpoint::read_adapter_config(folder))};
  return {run.resumed, folder};  // otherwise the model in memory has not been trained yet
}

std::shared_ptr<models::LanguageModel> read_reference(const RunContext& run, const std::string& folder) {
  ModelConfig config = run.config.model;
  config.model_name_or_path = folder;
  if (!folder.empty()) config.config_name = config.config_overrides = "";
  auto model = models::load_language_model(config, static_cast<std::uint64_t>(run.config.optimization.seed));
  if (model->objective() != data::Objective::Kind::next_token || model->vocab_size() != run.model->vocab_size())
    throw InputError(concat("--ref_model_name_or_path ", folder, ": the vocabulary has ", model->vocab_size(),
                            " entries, but the trained model's has ", run.model->vocab_size(),
                            ": the reference must be a causal model with the same tokenizer"));
  // The initial model is the quantized one, except for parameters trained whole alongside adapters.
  if (const auto form = models::quantized_form(run.config.model);
      form && run.config.model.ref_model_name_or_path.empty()) {
    for (auto& item : model->named_parameters())
      item.value().set_requires_grad(run.lora && checkpoint::is_saved_whole(item.key(), *run.lora));
    models::quantize(*model, *form, nullptr);
  }
  return model;
}

constexpr std::size_t sums_count = 6;  // members of Preferences::sums_, in order

/// Not thread-safe.
class Preferences : public RunFeature, public Objective {
 public:
  explicit Preferences(const OptimizationConfig& config) : config_(config) {}

  void prepare_model(ModelBuild& build) override { build.parts.objective = this; }
  void divided(const RunContext& run) override { run_ = &run; }
  void start(std::vector<std::string>& notes) override;
  void log(LogSums& sums) override;

  // Rows are arranged by data::as_pairs(), starting with sample batch.first_row / 2.
  std::int64_t rows_of_sample() const override { return 2; }
  data::Batch arranged(data::Batch rows) const override { return data::as_pairs(rows); }
  data::Batch arranged_idle(data::Batch rows) const override { return data::as_pairs(rows); }
  /// The loss summed over the pairs.
  at::Tensor loss(const data::Batch& batch, double scale) override;
  at::Tensor trial_loss(const data::Batch& batch) override;
  /// The loss and the rewards of the validation pairs, as in train/loop/evaluate.h: sums are added in the order of the
  /// batches. Collective over the data-parallel ranks.
  std::optional<EvalMetrics> evaluate(const Evaluating& how) override;

 private:
  /// The reference's log-probabilities of rows of a dataset.
  struct Reference {
    std::vector<std::int64_t> rows;  ///< ascending
    std::vector<double> values;      ///< two per row: chosen, rejected
  };
  std::string measure_reference();
  void measure(models::LanguageModel& model, const data::Dataset& dataset, std::optional<at::ScalarType> narrow,
               bool together, Reference& reference) const;
  at::Tensor reference_of(const Reference& reference, const data::Sampler& sampler, const data::Batch& batch) const;

  const OptimizationConfig config_;
  const RunContext* run_ = nullptr;
  Reference train_, validation_;
  /// This rank's sums since the last log: rewards of chosen and of rejected answers, pairs whose chosen answer has the
  /// higher reward, log-probabilities of chosen and of rejected answers, pairs.
  std::vector<double> sums_ = std::vector<double>(sums_count, 0);
};

/// Means from sums over the ranks.
PreferenceMetrics means_of(const double* sums) {
  const double pairs = sums[5];
  if (!(pairs > 0)) return {};
  return {true, sums[0] / pairs, sums[1] / pairs, sums[2] / pairs, sums[3] / pairs, sums[4] / pairs};
}

/// Each rank computes every group.size()-th batch.
void Preferences::measure(models::LanguageModel& model, const data::Dataset& dataset,
                          std::optional<at::ScalarType> narrow, bool together, Reference& reference) const {
  const std::int64_t all = std::ssize(reference.rows);
  if (all == 0) return;
  const comm::Group& group = run_->groups.data;
  const data::Sampler in_order(SamplingStrategy::sequential, reference.rows.back() + 1, 0);  // sample i is row i
  const std::int64_t size = run_->plan.batch_size;
  const std::int64_t batches = (all + size - 1) / size, rounds = (batches + group.size() - 1) / group.size();
  at::Tensor found = at::zeros({all, 2}, at::kDouble);
  for (std::int64_t k = 0; k < rounds; ++k) {
    const std::int64_t own = k * group.size() + group.rank();
    const bool counts = own < batches;
    if (!counts && !together) break;
    // a rank without rows takes part in the other ranks' collectives
    const std::int64_t first = counts ? own * size : 0;
    const std::int64_t count = std::min(size, all - first);
    const auto begin = reference.rows.begin() + first;
    const data::Batch batch = to_device(
        data::as_pairs(data::make_batch(dataset, in_order, std::vector<std::int64_t>(begin, begin + count), 0)),
        group.device());
    const nn::Autocast precision(narrow, group.device().type());
    const at::Tensor sums = causal(model).log_probabilities(batch);
    comm::heartbeat().advance();
    if (counts) found.narrow(0, first, count).copy_(sums.view({count, 2}));
  }
  found = found.to(group.device());
  group.all_reduce(found).wait();
  found = found.cpu().contiguous();
  reference.values.assign(found.const_data_ptr<double>(), found.const_data_ptr<double>() + found.numel());
}

/// Computes the reference's log-probabilities for all rows that the run has yet to see and for the validation rows. The
/// reference is ref_model_name_or_path, or the model before the first step (with LoRA: the model that is adapted). A
/// resumed run reads that model again. Each rank computes its share; a reference read from a folder is whole on each
/// rank during this time. Does nothing for losses without a reference. Returns a line for the log, or "". Throws
/// InputError for a reference with a different vocabulary.
std::string Preferences::measure_reference() {
  const RunContext& run = *run_;
  const std::int64_t first_sample = run.plan.samples(run.plan.resumed_step),
                     end_sample = run.plan.samples(run.plan.total_steps);
  if (!config::needs_reference(config_.preference_loss)) return "";
  const comm::Tag tag("reference");
  const comm::LongPhase phase("reference model");
  const std::int64_t begin_ns = monotonic_ns();
  const data::Dataset& dataset = *run.datasets.train;
  std::set<std::int64_t> needed;
  // Two epochs' worth of samples contain every row.
  for (std::int64_t i = first_sample; i < std::min(end_sample, first_sample + 2 * dataset.size()); ++i)
    needed.insert(run.sampler(i));
  train_.rows.assign(needed.begin(), needed.end());
  const data::Dataset* const validation = run.datasets.validation.get();
  validation_.rows.resize(validation ? static_cast<std::size_t>(validation->size()) : 0);
  std::iota(validation_.rows.begin(), validation_.rows.end(), std::int64_t{0});
  const std::size_t pairs = train_.rows.size() + validation_.rows.size();
  if (pairs == 0) return "";

  const comm::Group& group = run.groups.data;
  const Origin origin = origin_of(run);
  std::shared_ptr<models::LanguageModel> model = run.model;
  comm::run_on_all_ranks(group, [&] {
    if (origin.read) {
      model = read_reference(run, origin.folder);
      model->to(group.device());
    }
  });
  const bool was_training = model->is_training();
  model->eval();
  {
    const at::NoGradGuard no_grad;
    measure(*model, dataset, training_precision(run.config), !origin.read, train_);
    if (validation) measure(*model, *validation, evaluation_precision(run.config), !origin.read, validation_);
  }
  model->train(was_training);
  return concat(
      "reference: ",
      origin.read ? (origin.folder.empty() ? "the initial model" : origin.folder) : "the model before its first step",
      "; log-probabilities of ", pairs, pairs == 1 ? " pair in " : " pairs in ",
      format_real(seconds_since(begin_ns), 3), " s");
}

void Preferences::start(std::vector<std::string>& notes) {
  if (std::string said = measure_reference(); !said.empty()) notes.push_back(std::move(said));
}

at::Tensor Preferences::reference_of(const Reference& reference, const data::Sampler& sampler,
                                     const data::Batch& batch) const {
  if (!config::needs_reference(config_.preference_loss)) return {};
  const std::int64_t pairs = batch.ids.size(0) / 2, first = batch.first_row / 2;
  std::vector<double> values;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t row = sampler(first + i);
    const auto at = std::lower_bound(reference.rows.begin(), reference.rows.end(), row);
    TESSERA_CHECK(at != reference.rows.end() && *at == row, "the reference has not seen row ", row);
    const auto place = static_cast<std::size_t>(2 * (at - reference.rows.begin()));
    values.push_back(reference.values[place]);
    values.push_back(reference.values[place + 1]);
  }
  return at::tensor(values, at::kDouble).to(batch.ids.device());
}

std::optional<EvalMetrics> Preferences::evaluate(const Evaluating& how) {
  const comm::Tag tag("evaluation");
  const std::int64_t begin_ns = monotonic_ns();
  const at::NoGradGuard no_grad;
  models::LanguageModel& model = *run_->model;
  const bool was_training = model.is_training();
  model.eval();
  const data::Dataset& dataset = *run_->datasets.validation;
  const comm::Group& group = run_->groups.data;
  const std::int64_t size = run_->config.optimization.per_device_eval_batch_size;
  const data::Sampler in_order(SamplingStrategy::sequential, dataset.size(), 0);
  const std::int64_t batches = (dataset.size() + size - 1) / size, rounds = (batches + group.size() - 1) / group.size();
  constexpr auto fields = static_cast<std::int64_t>(1 + sums_count);
  at::Tensor table = at::zeros({batches, fields}, at::kDouble);  // columns: the loss, then take_sums()
  EvalMetrics metrics;
  bool given_up = false;
  for (std::int64_t k = 0; k < rounds; ++k) {
    given_up = !how.goes_on(k, rounds);
    if (given_up) break;
    const std::int64_t own = k * group.size() + group.rank();
    const bool counts = own < batches;
    if (!counts && !how.together) break;
    const std::int64_t first = counts ? own * size : 0;  // a rank without a batch takes part in the others' collectives
    data::Batch rows = data::make_batch(dataset, in_order, first, std::min(size, dataset.size() - first));
    rows.first_row = first;
    const data::Batch batch = to_device(data::as_pairs(rows), group.device());
    const nn::Autocast precision(evaluation_precision(run_->config), group.device().type());
    const at::Tensor sums = causal(model).log_probabilities(batch);
    comm::heartbeat().advance();
    if (!counts) continue;
    ++metrics.batches;
    const PreferenceTerms terms =
        preference_terms(config_, sums, tokens_of(batch.labels), reference_of(validation_, in_order, batch));
    table.select(0, own).copy_(
        at::tensor({terms.loss.item<double>(), terms.chosen, terms.rejected, terms.accurate, terms.log_chosen,
                    terms.log_rejected, static_cast<double>(batch.ids.size(0) / 2)},
                   at::kDouble));
  }
  model.train(was_training);
  if (given_up) return std::nullopt;
  table = table.to(group.device());
  group.all_reduce(table).wait();
  table = table.cpu().contiguous();
  std::vector<double> sums(static_cast<std::size_t>(fields), 0);
  for (std::int64_t i = 0; i < table.numel(); ++i)
    sums[static_cast<std::size_t>(i % fields)] += table.const_data_ptr<double>()[i];
  metrics.preference = means_of(sums.data() + 1);
  metrics.loss = sums[0] / sums.back();
  metrics.tokens = metrics.rows = dataset.size();
  metrics.seconds = seconds_since(begin_ns);
  return metrics;
}

at::Tensor Preferences::loss(const data::Batch& batch, double scale) {
  if (!batch.counts) return trial_loss(batch);
  const at::Tensor sums = causal(*run_->model).log_probabilities(batch);
  const PreferenceTerms terms =
      preference_terms(config_, sums, tokens_of(batch.labels), reference_of(train_, run_->sampler, batch));
  const double own[] = {terms.chosen,     terms.rejected,     terms.accurate,
                        terms.log_chosen, terms.log_rejected, static_cast<double>(batch.ids.size(0) / 2)};
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += own[i];
  return terms.loss * scale;
}

at::Tensor Preferences::trial_loss(const data::Batch& batch) {
  const at::Tensor sums = causal(*run_->model).log_probabilities(batch);
  return preference_terms(config_, sums, tokens_of(batch.labels), at::zeros_like(sums)).loss * 0;
}

void Preferences::log(LogSums& sums) {
  sums.add(std::exchange(sums_, std::vector<double>(sums_count, 0)),
           [](StepMetrics& metrics, const double* all) { metrics.preference = means_of(all); });
}

}  // namespace

std::unique_ptr<RunFeature> make_preferences(const RunConfig& config) {
  return config.optimization.preference_loss == PreferenceLoss::none
             ? nullptr
             : std::make_unique<Preferences>(config.optimization);
}

}  // namespace tessera::train
