#include <tessera/models/lora.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/names/module_names.h>
#include <tessera/config/model/vocabulary.h>
#include <tessera/config/rules/lora_modules.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/layers.h>
#include <tessera/models/load.h>
#include <tessera/models/registry.h>
#include <tessera/models/vision/compose.h>
#include <tessera/nn/parameter_semantics.h>
#include <tessera/parallel/deferred/deferred.h>

namespace tessera::models {
namespace {

using NamedLinear = std::pair<std::string, Linear*>;

std::vector<NamedLinear> linears_of(const LanguageModel& model) {
  std::vector<NamedLinear> found;
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (auto* linear = dynamic_cast<Linear*>(item.value().get()); linear && model.may_be_adapted(item.key()))
      found.emplace_back(item.key(), linear);
  return found;
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

bool is_head(const std::string& module) {
  const std::string last = last_part(module);
  return last == "lm_head" || last == "embed_out";
}

/// Whether modules_to_save contains a head that is tied to the embeddings.
bool names_tied_head(const LanguageModel& model, const LoraConfig& config) {
  const std::vector<std::string>& whole = config.modules_to_save;
  return std::any_of(whole.begin(), whole.end(),
                     [&](const std::string& target) { return is_tied_copy(model, target + ".weight"); });
}

/// Explains a target that matched no linear map.
[[noreturn]] void throw_no_match(const LanguageModel& model, const std::vector<NamedLinear>& linears,
                                 const std::string& target) {
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (is_meant_module(item.key(), target))
      throw InputError(concat("LoRA target '", target, "' names ", item.key(),
                              ", which is not a linear map; only linear maps can have adapters"));
  std::set<std::string> ends;
  for (const auto& [name, linear] : linears) ends.insert(last_part(name));
  const std::vector<std::string> known(ends.begin(), ends.end());
  const auto near = nearest(last_part(target), known);
  throw InputError(concat("LoRA target '", target, "' matches no module of the model",
                          near ? concat("; did you mean '", *near, "'?") : ".", " Its linear maps are ", join(known),
                          " (for example ", linears.front().first, "), or all of them: ", all_linear));
}

/// The linear maps that the targets select, in module order.
std::vector<NamedLinear> select(const LanguageModel& model, const std::vector<std::string>& targets) {
  const std::vector<NamedLinear> linears = linears_of(model);
  TESSERA_CHECK(!linears.empty(), "the model has no linear maps for adapters");
  const bool all = targets == std::vector<std::string>{all_linear};
  std::vector<NamedLinear> chosen;
  std::set<std::string> matched;
  for (const NamedLinear& candidate : linears) {
    bool wanted = all && !is_head(candidate.first);
    for (const std::string& target : targets) {
      if (!is_meant_module(candidate.first, target)) continue;
      wanted = true;
      matched.insert(target);
    }
    if (wanted) chosen.push_back(candidate);
  }
  if (!all)
    for (const std::string& target : targets)
      if (!matched.contains(target)) throw_no_match(model, linears, target);
  return chosen;
}

/// Whether PEFT, which does not know may_be_adapted(), would select modules other than `chosen` with these targets.
bool mean_others(const LanguageModel& model, const std::vector<NamedLinear>& chosen,
                 const std::vector<std::string>& targets) {
  std::set<std::string> names;
  for (const auto& [name, linear] : chosen) names.insert(name);
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    for (const std::string& target : targets)
      if (is_meant_module(item.key(), target) && !names.contains(item.key())) return true;
  return false;
}

/// Targets that select exactly `chosen`: last parts of names if no other module shares them, otherwise full names.
std::vector<std::string> spelled_out(const LanguageModel& model, const std::vector<NamedLinear>& chosen) {
  std::set<std::string> names, targets;
  for (const auto& [name, linear] : chosen) names.insert(name);
  std::set<std::string> ambiguous;
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (!names.contains(item.key())) ambiguous.insert(last_part(item.key()));
  for (const std::string& name : names) targets.insert(ambiguous.contains(last_part(name)) ? name : last_part(name));
  return {targets.begin(), targets.end()};
}

/// Whether these maps have no memory; then their adapters have none either.
bool lack_memory(const std::vector<NamedLinear>& linears) {
  return std::any_of(linears.begin(), linears.end(),
                     [](const NamedLinear& l) { return parallel::is_deferred(l.second->weight); });
}

/// Throws InputError if config.modules_to_save names the embeddings or the head of a model that shares one matrix for
/// both, but not both as one weight.
void check_tied(const LanguageModel& model, const LoraConfig& config) {
  const std::string tied = model.tied_parameter();
  if (tied.empty() || !checkpoint::is_saved_whole(tied, config)) {
    for (const std::string& target : config.modules_to_save)
      if (is_tied_copy(model, target + ".weight"))
        throw InputError(concat("modules_to_save: '", target,
                                "' shares the embeddings' matrix (tie_word_embeddings): "
                                "list both, which are trained as one: --lora_modules_to_save ",
                                last_part(tied.substr(0, tied.rfind('.'))), ",", target));
    return;
  }
  const bool as_one = config.ties_embeddings || names_tied_head(model, config);
  if (!as_one || !is_tied_copy(model, "lm_head.weight"))
    throw InputError(concat("modules_to_save: ", tied,
                            " belongs to both the embeddings and the head; without ensure_weight_tying PEFT would "
                            "train a copy, so that the two differ afterwards, which this model's configuration does "
                            "not allow: adapt other modules (--lora_target_modules all-linear)"));
}

/// Makes the modules in config.modules_to_save trainable.
void train_whole(LanguageModel& model, const std::vector<NamedLinear>& adapted, const LoraConfig& config) {
  check_tied(model, config);
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const std::string& target : config.modules_to_save) {
    bool found = is_tied_copy(model, target + ".weight");
    std::set<std::string> ends;
    for (const auto& item : modules) {
      ends.insert(last_part(item.key()));
      if (!is_named_module(item.key(), target)) continue;
      for (at::Tensor& parameter : item.value()->parameters()) {
        found = true;
        parameter.set_requires_grad(true);
      }
    }
    if (found) continue;
    const std::vector<std::string> known(ends.begin(), ends.end());
    const auto near = nearest(last_part(target), known);
    throw InputError(concat("modules_to_save: '", target, "' matches no module of the model with parameters",
                            near ? concat("; did you mean '", *near, "'?") : ""));
  }
  for (const auto& [name, linear] : adapted)
    if (checkpoint::is_saved_whole(name + ".weight", config))
      throw InputError(concat("modules_to_save: ", name,
                              " gets adapters and would also be trained whole: remove it from one of "
                              "--lora_target_modules and --lora_modules_to_save"));
}

/// Freezes the model and adds uninitialized adapters to the chosen modules.
void add_adapters(LanguageModel& model, const std::vector<NamedLinear>& chosen, const LoraConfig& config) {
  for (const auto& [name, linear] : linears_of(model))
    if (linear->lora_A)
      throw InputError(
          "the model already has LoRA adapters, which continue to be trained: remove --lora_r, or merge "
          "them into the model first (--lora_merge)");
  for (at::Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  train_whole(model, chosen, config);
  for (const auto& [name, linear] : chosen) {
    linear->add_lora(name, config.rank_of(name), config.alpha_of(name), config.dropout);
    linear->lora_scale = config.scale_of(name);
    const auto device = linear->weight.device();
    linear->lora_A->to(device);
    linear->lora_B->to(device);
  }
}

bool is_conv1d(const std::vector<NamedLinear>& chosen) {
  return std::any_of(chosen.begin(), chosen.end(),
                     [](const NamedLinear& l) { return l.second->layout == nn::WeightLayout::in_out; });
}

/// Maps stored tensor names to the model's: names of adapters on a base without its head lack the prefix of the whole
/// model; others have an additional prefix.
class OwnNames {
 public:
  explicit OwnNames(const LanguageModel& model) : base_(architectures::embedding_parameter(model.spec())) {
    base_.resize(base_.find('.') + 1);
    for (const auto& item : model.named_modules("", /*include_self=*/false)) known_.insert(item.key());
    for (const auto& item : model.named_parameters()) known_.insert(item.key());
  }
  std::string operator()(const std::string& stored) const {
    for (const std::string& name : {stored, base_ + stored, stored.substr(stored.find('.') + 1)})
      if (known_.contains(name.substr(0, name.find(".lora_")))) return name;
    return stored;
  }

 private:
  std::string base_;
  std::set<std::string> known_;
};

/// Copies `stored` over the model's adapters, the parameters trained whole, and embeddings saved with them; lists all
/// mismatches in one error.
void overwrite_adapters(const LanguageModel& model, const checkpoint::NamedTensors& stored, const std::string& folder) {
  std::map<std::string, at::Tensor> wanted;
  for (const auto& [name, tensor] : adapter_state(model)) wanted.emplace(name, tensor);
  const OwnNames own_name(model);
  std::set<std::string> tied;  // a head's copy of the embeddings
  const auto parameters = model.named_parameters();
  for (const auto& [in_file, tensor] : stored) {
    const std::string name = own_name(in_file);
    if (!checkpoint::is_embedding_name(name)) continue;
    if (const at::Tensor* own = parameters.find(name)) wanted.emplace(name, *own);
    if (!is_tied_copy(model, name)) continue;
    tied.insert(name);
    for (const auto& [other, table] : stored)
      if (own_name(other) == model.tied_parameter() && !at::equal(table, tensor))
        throw InputError(concat(folder, ": ", in_file, " and ", other,
                                " differ, but are one matrix of the base model (tie_word_embeddings): they were "
                                "trained without PEFT's ensure_weight_tying, and the adapters cannot be read"));
  }
  std::vector<std::string> problems;
  const auto problem = [&](const auto&... parts) {
    if (problems.size() == 20) problems.push_back("...");
    if (problems.size() < 20) problems.push_back(concat(parts...));
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  for (const auto& [in_file, tensor] : stored) {
    const std::string name = own_name(in_file);
    const auto place = wanted.find(name);
    if (tied.contains(name)) continue;
    if (place == wanted.end()) {
      problem("unexpected tensor ", in_file);
      continue;
    }
    if (tensor.sizes() != place->second.sizes())
      problem(name, " has shape ", c10::str(tensor.sizes()), ", but the model needs ", c10::str(place->second.sizes()));
    else
      pairs.emplace_back(place->second, tensor);
    wanted.erase(place);
  }
  for (const auto& [name, tensor] : wanted) problem("missing tensor ", name, " ", c10::str(tensor.sizes()));
  if (!problems.empty())
    throw InputError(concat(folder, ": the adapters do not fit the model:\n  ", join(problems, "\n  ")));
  const at::NoGradGuard no_grad;
  for (auto& [own, read] : pairs) {
    if (parallel::is_deferred(own)) parallel::materialize_empty(own);
    own.copy_(read);
  }
}

/// Returns the modules of adapter tensors; throws if the model lacks one.
std::vector<NamedLinear> modules_of(const LanguageModel& model, const std::vector<std::string>& stored,
                                    const std::string& folder) {
  std::set<std::string> names;
  constexpr std::string_view endings[] = {".lora_A.weight", ".lora_B.weight"};
  const OwnNames own_name(model);
  for (const std::string& in_file : stored)
    for (const std::string_view ending : endings)
      if (const std::string name = own_name(in_file); name.ends_with(ending))
        names.insert(name.substr(0, name.size() - ending.size()));
  std::vector<NamedLinear> chosen;
  for (const NamedLinear& candidate : linears_of(model))
    if (names.erase(candidate.first) > 0) chosen.push_back(candidate);
  if (!names.empty())
    throw InputError(concat(folder, ": the adapters belong to modules that are not linear maps of the base model: ",
                            join(std::vector<std::string>(names.begin(), names.end()))));
  return chosen;
}

std::string with_commas(std::int64_t count) {
  std::string text = std::to_string(count);
  for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(text.size()) - 3; i > 0; i -= 3)
    text.insert(static_cast<std::size_t>(i), ",");
  return text;
}

}  // namespace

LoraConfig lora_config(const ModelConfig& config) {
  LoraConfig lora;
  lora.r = config.lora_r;
  lora.alpha = config.lora_alpha;
  lora.dropout = config.lora_dropout;
  lora.rank_stabilized = config.use_rslora;
  lora.target_modules = config::lora_targets(config);
  lora.modules_to_save = config::lora_modules_to_save(config);
  std::vector<std::string>& whole = lora.modules_to_save;
  if (!config.vision_tower.empty() && std::find(whole.begin(), whole.end(), projector_module) == whole.end())
    whole.emplace_back(projector_module);
  return lora;
}

bool is_tied_copy(const LanguageModel& model, const std::string& parameter) {
  const std::string tied = model.tied_parameter(), module = parameter.substr(0, parameter.rfind('.'));
  if (tied.empty() || parameter == tied || !is_head(module) || model.objective() != data::Objective::Kind::next_token)
    return false;
  const auto modules = model.named_modules("", /*include_self=*/false);
  return std::none_of(modules.begin(), modules.end(), [](const auto& item) { return is_head(item.key()); });
}

LoraConfig apply_lora(LanguageModel& model, LoraConfig config, std::uint64_t seed) {
  if (const std::string tied = model.tied_parameter();
      !tied.empty() && checkpoint::is_saved_whole(tied, config) && is_tied_copy(model, "lm_head.weight")) {
    config.ties_embeddings = true;
    if (!names_tied_head(model, config)) config.modules_to_save.emplace_back("lm_head");
  }
  if (config.target_modules.empty()) config.target_modules = model.default_lora_targets();
  const auto chosen = select(model, config.target_modules);
  std::optional<parallel::DeferredScope> scope;
  if (lack_memory(chosen)) scope.emplace();
  add_adapters(model, chosen, config);
  const at::NoGradGuard no_grad;
  for (const auto& [name, linear] : chosen) {
    const double bound = 1 / std::sqrt(static_cast<double>(linear->in_features()));
    at::Tensor& a = linear->lora_A->weight;
    // Drawn on the CPU: the same values on every device.
    at::Tensor values = a.is_cpu() ? a : at::empty(a.sizes());
    values.uniform_(-bound, bound, generator_by_name(seed, name + ".lora_A.weight"));
    if (!a.is_cpu()) a.copy_(values);
    linear->lora_B->weight.zero_();
  }
  if (config.target_modules == std::vector<std::string>{all_linear} ||
      mean_others(model, chosen, config.target_modules))
    config.target_modules = spelled_out(model, chosen);
  config.fan_in_fan_out = is_conv1d(chosen);
  return config;
}

void keep_embeddings(const LanguageModel& model, LoraConfig& config) {
  config.kept_embeddings.clear();
  for (const auto& item : model.named_parameters())
    if (checkpoint::is_embedding_name(item.key()) && !item.value().requires_grad())
      config.kept_embeddings.push_back(item.key());
}

checkpoint::NamedTensors lora_state(const LanguageModel& model) {
  checkpoint::NamedTensors state;
  for (const auto& [name, linear] : linears_of(model)) {
    if (!linear->lora_A) continue;
    state.emplace_back(name + ".lora_A.weight", linear->lora_A->weight);
    state.emplace_back(name + ".lora_B.weight", linear->lora_B->weight);
  }
  return state;
}

checkpoint::NamedTensors adapter_state(const LanguageModel& model) {
  checkpoint::NamedTensors state;
  for (const auto& item : model.named_parameters())
    if (item.value().requires_grad()) state.emplace_back(item.key(), item.value());
  return state;
}

void load_adapters(LanguageModel& model, const LoraConfig& config, const std::string& folder) {
  const LoraConfig stored = checkpoint::read_adapter_config(folder);
  for (const auto& [name, linear] : linears_of(model))
    if (linear->lora_A && stored.scale_of(name) != config.scale_of(name))
      throw InputError(concat(folder, ": its adapters are scaled by ", format_real(stored.scale_of(name), 6),
                              " (lora_alpha ", format_real(stored.alpha_of(name), 6), ", r ", stored.rank_of(name),
                              "), but this run's by ", format_real(config.scale_of(name), 6), " (lora_alpha ",
                              format_real(config.alpha_of(name), 6), ", r ", config.rank_of(name),
                              "): use the same --lora_r and --lora_alpha"));
  const OwnNames own_name(model);
  const auto wanted = [&](const std::string& name) { return !model.lies_elsewhere(own_name(name)); };
  overwrite_adapters(model, checkpoint::read_adapter_weights(folder, wanted), folder);
}

namespace {

/// The base model of an adapter folder, made by `load`, with adapters whose values have not been read yet.
std::shared_ptr<LanguageModel> adapted_model(
    const std::string& folder,
    const std::function<std::shared_ptr<LanguageModel>(const ModelConfig& base, const ConfigEdit& edit)>& load) {
  const LoraConfig config = checkpoint::read_adapter_config(folder);
  const std::vector<std::string> stored = checkpoint::adapter_names(folder);
  const ConfigEdit with_their_rows = [rows = checkpoint::adapter_vocabulary(folder)](Value json) {
    return config::with_vocabulary(std::move(json), rows);
  };
  checkpoint::require_targets(folder, stored);
  auto model =
      load(base_of_adapters(checkpoint::base_model_folder(folder, config), config.composition), with_their_rows);
  const auto chosen =
      config.targets_from_weights ? modules_of(*model, stored, folder) : select(*model, config.target_modules);
  std::optional<parallel::DeferredScope> scope;
  if (lack_memory(chosen)) scope.emplace();
  add_adapters(*model, chosen, config);
  return model;
}

}  // namespace

std::shared_ptr<LanguageModel> load_adapted_model(const std::string& folder, std::uint64_t seed) {
  auto model = adapted_model(
      folder, [&](const ModelConfig& base, const ConfigEdit& edit) { return load_language_model(base, seed, edit); });
  overwrite_adapters(*model, checkpoint::read_adapter_weights(folder), folder);
  return model;
}

std::shared_ptr<LanguageModel> load_adapted_model_deferred(const std::string& folder, std::uint64_t seed,
                                                           std::string& weights_folder) {
  return adapted_model(folder, [&](const ModelConfig& base, const ConfigEdit& edit) {
    return load_model_deferred(base, seed, weights_folder, edit);
  });
}

LoraConfig loaded_lora_config(const LanguageModel& model, const std::string& folder) {
  LoraConfig config = checkpoint::read_adapter_config(folder);
  std::vector<NamedLinear> adapted;
  for (const NamedLinear& linear : linears_of(model))
    if (linear.second->lora_A) adapted.push_back(linear);
  if (config.targets_from_weights || config.target_modules == std::vector<std::string>{all_linear} ||
      mean_others(model, adapted, config.target_modules))
    config.target_modules = spelled_out(model, adapted);
  config.targets_from_weights = false;
  if (names_tied_head(model, config)) config.ties_embeddings = true;
  config.fan_in_fan_out = is_conv1d(adapted);
  config.base_model = absolute_path(checkpoint::base_model_folder(folder, config));
  for (const std::string& name : checkpoint::adapter_names(folder))
    if (checkpoint::is_embedding_name(name)) keep_embeddings(model, config);
  return config;
}

void merge_lora(LanguageModel& model) {
  const at::NoGradGuard no_grad;
  if (!lora_state(model).empty()) dequantize(model);
  for (const auto& [name, linear] : linears_of(model)) {
    if (!linear->lora_A) continue;
    const at::Tensor &a = linear->lora_A->weight, &b = linear->lora_B->weight;  // [r, in], [out, r]
    if (linear->layout == nn::WeightLayout::out_in)
      linear->weight.addmm_(b, a, 1, linear->lora_scale);
    else
      linear->weight.addmm_(a.t(), b.t(), 1, linear->lora_scale);
    linear->unregister_module("lora_A");
    linear->unregister_module("lora_B");
    linear->lora_A.reset();
    linear->lora_B.reset();
  }
}

double lora_flops_per_token(const LanguageModel& model, std::int64_t block_size) {
  const double frozen = model.flops_per_token(0) / 6;  // without attention's part: 6 N
  auto adapters = static_cast<double>(model.trained_elsewhere()), whole = 0.0;
  for (const auto& [name, tensor] : lora_state(model)) adapters += static_cast<double>(nn::whole_numel(tensor));
  for (const auto& [name, tensor] : adapter_state(model)) {  // matrices counted by flops_per_token that have gradients
    const std::string module = name.substr(0, name.rfind('.')), kind = last_part(module);
    const bool adapter = kind == "lora_A" || kind == "lora_B";
    const bool multiplies = is_head(module) || !model.is_embedding(name) || name == model.tied_parameter();
    if (tensor.dim() == 2 && !adapter && model.may_be_adapted(module) && multiplies)
      whole += static_cast<double>(nn::whole_numel(tensor));
  }
  return model.flops_per_token(block_size) - 2 * (frozen - whole) + 6 * adapters;
}

std::string describe_trainable(const LanguageModel& model) {
  std::int64_t all = model.elsewhere_elements() + quantized_sizes(model).elements,
               trainable = model.trained_elsewhere();
  std::set<const void*> seen;
  for (const at::Tensor& parameter : model.parameters()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    all += nn::whole_numel(parameter);
    if (parameter.requires_grad()) trainable += nn::whole_numel(parameter);
  }
  char share[32];
  std::snprintf(share, sizeof share, "%.4f", 100.0 * static_cast<double>(trainable) / static_cast<double>(all));
  return concat("trainable params: ", with_commas(trainable), " || all params: ", with_commas(all),
                " || trainable%: ", share);
}

}  // namespace tessera::models
