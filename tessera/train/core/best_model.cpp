#include <tessera/train/core/best_model.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/peft.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/resolve/validate_evaluations.h>
#include <tessera/config/sections/output_config.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/models/lora.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/train/saving/stage_parts.h>
#include <tessera/train/saving/tensor_parts.h>

namespace tessera::train {

std::string why_no_metric(const std::string& name, bool classifies) {
  const std::string metric = name.starts_with("eval_") ? name.substr(5) : name;
  const bool known = metric.empty() || metric == "loss" ||
                     (classifies ? metric == "accuracy" || metric == "f1" : metric == "perplexity");
  return known ? ""
               : concat("--metric_for_best_model ", name, ": an evaluation of this model, which ",
                        classifies ? "is a classifier, has loss, accuracy and f1"
                                   : "is a language model, has loss and perplexity");
}

double metric_of(const EvalMetrics& metrics, const std::string& name) {
  const std::string metric = name.starts_with("eval_") ? name.substr(5) : name;
  if (metric.empty() || metric == "loss") return metrics.loss;
  if (metric == "perplexity" && metrics.has_perplexity()) return metrics.perplexity();
  for (const auto& [known, value] : named(metrics.classes))
    if (metric == known) return value;
  throw InputError(why_no_metric(name, metrics.classes.measured));
}

bool greater_is_better(const OutputConfig& config) {
  if (const auto asked = decided(config.greater_is_better)) return *asked;
  const std::string& metric = config.metric_for_best_model;
  return !metric.empty() && !metric.ends_with("loss") && !metric.ends_with("perplexity");
}

BestModel::BestModel(const OutputConfig& config, const checkpoint::RunState* resumed)
    : wanted_(config.load_best_model_at_end || config.save_strategy == SaveStrategy::best ||
              !config.metric_for_best_model.empty()),
      loads_at_end_(config.load_best_model_at_end),
      greater_is_better_(train::greater_is_better(config)),
      metric_(config.metric_for_best_model) {
  if (resumed == nullptr) return;
  value_ = resumed->best_metric;
  step_ = resumed->best_step;
  checkpoint_ = resumed->best_model_checkpoint;
}

bool BestModel::update(const EvalMetrics& metrics) {
  // by the config rules nothing depends on such a metric
  if (!config::is_metric_of_evaluations(metric_)) return false;
  return wanted_ && update(metric_of(metrics, metric_), metrics.step);
}

bool BestModel::update(double value, std::int64_t step) {
  if (!wanted_) return false;
  if (!std::isfinite(value) || (value_ && !(greater_is_better_ ? value > *value_ : value < *value_))) return false;
  value_ = value;
  step_ = step;
  return true;
}

void BestModel::saving(std::int64_t step, const std::string& folder) {
  checkpoint_before_ = checkpoint_;
  if (wanted_ && step == step_) checkpoint_ = folder;
}

void BestModel::not_saved(const std::string& folder) {
  if (checkpoint_ == folder) checkpoint_ = checkpoint_before_;
}

std::string BestModel::checkpoint_to_load(int rank) const {
  if (!loads_at_end_) return "";
  if (checkpoint_.empty() && rank == 0)
    log::warning(
        "--load_best_model_at_end: no checkpoint of a best evaluation was saved, so the last weights are kept");
  return checkpoint_;
}

void BestModel::write_to(checkpoint::RunState& state) const {
  state.best_metric = value_;
  state.best_step = step_;
  state.best_model_checkpoint = checkpoint_;
}

namespace {

/// Loads this stage's tensors from a folder; returns how many, not counting those shared with an earlier stage.
std::int64_t take_weights(torch::nn::Module& module, Sharded& sharded, const format::SafetensorsFolder& weights,
                          const std::string& folder) {
  const auto find = [&](const std::string& name) -> const format::SafetensorsFolder::Stored& {
    if (const auto* stored = weights.find(name)) return *stored;
    throw InputError(concat(folder, ": has no tensor ", name,
                            ", which this model needs: these are the weights of a different model"));
  };
  const auto check = [&](const std::string& name, at::IntArrayRef sizes) {
    const at::IntArrayRef stored = find(name).info.shape;
    if (stored != sizes)
      throw InputError(concat(folder, ": ", name, " has shape ", stored, ", but this model needs ", sizes));
  };
  const auto read = [&](const std::string& name) {
    const auto& stored = find(name);
    return checkpoint::read_tensor(weights.files()[stored.file], stored.info);
  };
  auto names = static_cast<std::int64_t>(module.named_buffers().size());
  std::map<std::string, at::Tensor> local;
  for (const ShardedParameter& parameter : sharded.frozen_parameters()) local[parameter.name] = parameter.local;
  for (const ShardedParameter& parameter : sharded.named_parameters()) {
    check(parameter.name, saved_shape(parameter));
    local[parameter.name] = parameter.local;
  }
  sharded.load_parameters([&](const std::string& name) {
    if (!is_of_earlier_stage(sharded, name)) ++names;
    const auto parameter = local.find(name);
    return parameter != local.end() ? own_tensor_part(parameter->second, read(name)) : read(name);
  });
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_buffers()) {
    check(item.key(), item.value().sizes());
    at::Tensor(item.value()).copy_(read(item.key()));
  }
  return names;
}

/// Same for adapters.
std::int64_t take_adapters(const models::LanguageModel& model, Sharded& sharded,
                           const std::map<std::string, at::Tensor>& adapters, const std::string& folder) {
  const at::NoGradGuard no_grad;
  const auto parameters = model.named_parameters();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : adapters) {
    if (!parameters.contains(name))
      throw InputError(concat(folder, ": the adapter ", name, " does not exist in this run"));
    names.push_back(name);
  }
  if (names.empty()) return 0;
  const auto whole = sharded.unsharded({.names = names, .write_back = true});
  for (const std::string& name : names) {
    const at::Tensor* parameter = parameters.find(name);
    const at::Tensor& stored = adapters.at(name);
    const std::vector<std::int64_t> whole_sizes = whole_shape(*parameter);
    if (stored.sizes() != at::IntArrayRef(whole_sizes))
      throw InputError(
          concat(folder, ": ", name, " has shape ", stored.sizes(), ", but this model needs ", whole_sizes));
    parameter->copy_(own_tensor_part(*parameter, stored));
  }
  return static_cast<std::int64_t>(names.size());
}

}  // namespace

void load_weights(torch::nn::Module& module, Sharded& sharded, const std::string& folder, const std::string& stem) {
  std::int64_t stored = 0;
  const auto [names, none] = count_over_stages(sharded, [&] {
    const format::SafetensorsFolder weights(folder, stem);
    stored = static_cast<std::int64_t>(weights.tensors().size());
    return Counts{take_weights(module, sharded, weights, folder), 0};
  });
  if (names != stored)
    throw InputError(concat(folder, ": has ", stored, " tensors, but this model has ", names,
                            ": these are the weights of a different model"));
}

void load_trained_weights(models::LanguageModel& model, Sharded& sharded, const std::string& folder) {
  if (!checkpoint::is_adapter_folder(folder)) return load_weights(model, sharded, folder);
  std::int64_t stored = 0;
  const auto [names, none] = count_over_stages(sharded, [&] {
    const checkpoint::LoraConfig config = checkpoint::read_adapter_config(folder);
    const auto trained = [&](const std::string& name) {  // the file may also contain embeddings that were not trained
      return checkpoint::is_adapter_name(name) ||
             (checkpoint::is_saved_whole(name, config) && !models::is_tied_copy(model, name));
    };
    const auto wanted = [&](const std::string& name) { return trained(name) && !model.lies_elsewhere(name); };
    std::map<std::string, at::Tensor> adapters;
    for (auto& [name, tensor] : checkpoint::read_adapter_weights(folder, wanted)) adapters.emplace(name, tensor);
    const std::vector<std::string> all = checkpoint::adapter_names(folder);
    stored = std::count_if(all.begin(), all.end(), trained);
    return Counts{take_adapters(model, sharded, adapters, folder), 0};
  });
  if (names != stored)
    throw InputError(
        concat(folder, ": has ", stored, " adapter tensors, but only ", names, " of them belong to this run"));
}

}  // namespace tessera::train
