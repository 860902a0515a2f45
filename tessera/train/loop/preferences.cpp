#include <tessera/train/loop/preferences.h>

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
#include <tessera/config/rules/validate_preferences.h>
#include <tessera/data/pairs.h>
#include <tessera/models/causal_lm.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/load.h>
#include <tessera/nn/autocast.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/loop/evaluate.h>

namespace tessera::train {
namespace {

models::CausalLm& causal(models::LanguageModel& model) {
  auto* const causal = dynamic_cast<models::CausalLm*>(&model);
  TESSERA_CHECK(causal != nullptr, "pairs of answers need a causal model");
  return *causal;
}

/// Scored tokens of each row: double [rows].
at::Tensor tokens_of(const at::Tensor& labels) {
  return labels.slice(1, 1).ne(data::not_scored).sum(1).to(at::kDouble);
}

/// The folder whose model is to be read as the reference; empty, with `read` true: config_name's, initialised anew.
struct Origin {
  bool read = false;
  std::string folder;
};
Origin origin_of(const Setup& setup) {
  const ModelConfig& model = setup.config.model;
  if (!model.ref_model_name_or_path.empty()) return {true, model.ref_model_name_or_path};
  const std::string& folder = model.model_name_or_path;
  if (!folder.empty() && checkpoint::is_adapter_folder(folder))
    return {true, checkpoint::base_model_folder(folder, checkpoint::read_adapter_config(folder))};
  return {setup.resume.has_value(), folder};  // else the model that is there has not learnt anything yet
}

std::shared_ptr<models::LanguageModel> read_reference(const Setup& setup, const std::string& folder) {
  ModelConfig config = setup.config.model;
  config.model_name_or_path = folder;
  if (!folder.empty()) config.config_name = config.config_overrides = "";
  auto model = models::load_language_model(config, static_cast<std::uint64_t>(setup.config.optimization.seed));
  if (model->objective() != data::Objective::Kind::next_token || model->vocab_size() != setup.model->vocab_size())
    throw InputError(concat("--ref_model_name_or_path ", folder, ": its vocabulary has ", model->vocab_size(),
                            " entries, that of the trained model ", setup.model->vocab_size(),
                            ": the reference must be a causal model with the same tokenizer"));
  // The model as it was at the start is the quantized one, but for what is trained whole beside adapters.
  if (const auto form = models::quantized_form(setup.config.model);
      form && setup.config.model.ref_model_name_or_path.empty()) {
    for (auto& item : model->named_parameters())
      item.value().set_requires_grad(setup.lora && checkpoint::is_saved_whole(item.key(), *setup.lora));
    models::quantize(*model, *form, nullptr);
  }
  return model;
}

}  // namespace

/// Each rank computes every group.size()-th batch.
void Preferences::measure(const Setup& setup, models::LanguageModel& model, const data::Dataset& dataset,
                          std::optional<at::ScalarType> narrow, bool together, Reference& reference) {
  const std::int64_t all = std::ssize(reference.rows);
  if (all == 0) return;
  const comm::Group& group = setup.groups.data;
  const data::Sampler in_order(SamplingStrategy::sequential, reference.rows.back() + 1, 0);  // sample i is row i
  const std::int64_t size = setup.plan.batch_size;
  const std::int64_t batches = (all + size - 1) / size, rounds = (batches + group.size() - 1) / group.size();
  at::Tensor found = at::zeros({all, 2}, at::kDouble);
  for (std::int64_t k = 0; k < rounds; ++k) {
    const std::int64_t own = k * group.size() + group.rank();
    const bool counts = own < batches;
    if (!counts && !together) break;
    const std::int64_t first = counts ? own * size : 0;  // a rank without rows goes along, for the others' sake
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

std::string Preferences::measure_reference(const Setup& setup, const data::Sampler& sampler, std::int64_t first_sample,
                                           std::int64_t end_sample) {
  if (!config::needs_reference(config_.preference_loss)) return "";
  const comm::Tag tag("reference");
  const comm::LongPhase phase("reference model");
  const std::int64_t begin_ns = monotonic_ns();
  const data::Dataset& dataset = *setup.datasets.train;
  std::set<std::int64_t> needed;
  // Within twice as many samples as an epoch has every row has come.
  for (std::int64_t i = first_sample; i < std::min(end_sample, first_sample + 2 * dataset.size()); ++i)
    needed.insert(sampler(i));
  train_.rows.assign(needed.begin(), needed.end());
  const data::Dataset* const validation = setup.datasets.validation.get();
  validation_.rows.resize(validation ? static_cast<std::size_t>(validation->size()) : 0);
  std::iota(validation_.rows.begin(), validation_.rows.end(), std::int64_t{0});
  const std::size_t pairs = train_.rows.size() + validation_.rows.size();
  if (pairs == 0) return "";

  const comm::Group& group = setup.groups.data;
  const Origin origin = origin_of(setup);
  std::shared_ptr<models::LanguageModel> model = setup.model;
  run_on_all_ranks(group, [&] {
    if (origin.read) {
      model = read_reference(setup, origin.folder);
      model->to(group.device());
    }
  });
  const bool was_training = model->is_training();
  model->eval();
  {
    const at::NoGradGuard no_grad;
    measure(setup, *model, dataset, training_precision(setup.config), !origin.read, train_);
    if (validation) measure(setup, *model, *validation, evaluation_precision(setup.config), !origin.read, validation_);
  }
  model->train(was_training);
  return concat(
      "reference: ",
      origin.read ? (origin.folder.empty() ? "the model as it began" : origin.folder) : "the model as it begins",
      "; log-probabilities of ", pairs, pairs == 1 ? " pair in " : " pairs in ",
      format_real(seconds_since(begin_ns), 3), " s");
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

EvalMetrics Preferences::evaluate(const Setup& setup, bool together) const {
  const comm::Tag tag("evaluation");
  const std::int64_t begin_ns = monotonic_ns();
  const at::NoGradGuard no_grad;
  models::LanguageModel& model = *setup.model;
  const bool was_training = model.is_training();
  model.eval();
  const data::Dataset& dataset = *setup.datasets.validation;
  const comm::Group& group = setup.groups.data;
  const std::int64_t size = setup.config.optimization.per_device_eval_batch_size;
  const data::Sampler in_order(SamplingStrategy::sequential, dataset.size(), 0);
  const std::int64_t batches = (dataset.size() + size - 1) / size, rounds = (batches + group.size() - 1) / group.size();
  constexpr auto fields = static_cast<std::int64_t>(1 + sums_count);
  at::Tensor table = at::zeros({batches, fields}, at::kDouble);  // the loss, then take_sums()
  EvalMetrics metrics;
  for (std::int64_t k = 0; k < rounds; ++k) {
    const std::int64_t own = k * group.size() + group.rank();
    const bool counts = own < batches;
    if (!counts && !together) break;
    const std::int64_t first = counts ? own * size : 0;  // a rank without a batch goes along, for the others' sake
    data::Batch rows = data::make_batch(dataset, in_order, first, std::min(size, dataset.size() - first));
    rows.first_row = first;
    const data::Batch batch = to_device(data::as_pairs(rows), group.device());
    const nn::Autocast precision(evaluation_precision(setup.config), group.device().type());
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
  table = table.to(group.device());
  group.all_reduce(table).wait();
  table = table.cpu().contiguous();
  std::vector<double> sums(static_cast<std::size_t>(fields), 0);
  for (std::int64_t i = 0; i < table.numel(); ++i)
    sums[static_cast<std::size_t>(i % fields)] += table.const_data_ptr<double>()[i];
  metrics.preference = metrics_of(sums.data() + 1);
  metrics.loss = sums[0] / sums.back();
  metrics.tokens = metrics.rows = dataset.size();
  metrics.seconds = seconds_since(begin_ns);
  return metrics;
}

at::Tensor Preferences::loss(models::LanguageModel& model, const data::Sampler& sampler, const data::Batch& batch,
                             double scale) {
  const at::Tensor sums = causal(model).log_probabilities(batch);
  const PreferenceTerms terms =
      preference_terms(config_, sums, tokens_of(batch.labels), reference_of(train_, sampler, batch));
  const double own[] = {terms.chosen,     terms.rejected,     terms.accurate,
                        terms.log_chosen, terms.log_rejected, static_cast<double>(batch.ids.size(0) / 2)};
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += own[i];
  return terms.loss * scale;
}

at::Tensor Preferences::trial_loss(models::LanguageModel& model, const data::Batch& batch) {
  const at::Tensor sums = causal(model).log_probabilities(batch);
  return preference_terms(config_, sums, tokens_of(batch.labels), at::zeros_like(sums)).loss * 0;
}

std::vector<double> Preferences::take_sums() { return std::exchange(sums_, std::vector<double>(sums_count, 0)); }

PreferenceMetrics Preferences::metrics_of(const double* sums) {
  const double pairs = sums[5];
  if (!(pairs > 0)) return {};
  return {true, sums[0] / pairs, sums[1] / pairs, sums[2] / pairs, sums[3] / pairs, sums[4] / pairs};
}

}  // namespace tessera::train
