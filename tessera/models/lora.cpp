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
#include <tessera/base/module_names.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/layers.h>
#include <tessera/models/load.h>
#include <tessera/models/vision/compose.h>
#include <tessera/nn/redirect.h>
#include <tessera/parallel/deferred/deferred.h>

namespace tessera::models {
namespace {

constexpr const char* all_linear = "all-linear";

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

/// What a target that matched no linear map may have meant.
[[noreturn]] void throw_no_match(const LanguageModel& model, const std::vector<NamedLinear>& linears,
                                 const std::string& target) {
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (is_named_module(item.key(), target))
      throw InputError(concat("LoRA target '", target, "' names ", item.key(),
                              ", which is no linear map; adapters are for linear maps only"));
  std::set<std::string> ends;
  for (const auto& [name, linear] : linears) ends.insert(last_part(name));
  const std::vector<std::string> known(ends.begin(), ends.end());
  const auto near = nearest(last_part(target), known);
  throw InputError(concat("LoRA target '", target, "' matches no module of the model",
                          near ? concat("; did you mean '", *near, "'?") : "", " Its linear maps are ", join(known),
                          " (for example ", linears.front().first, "), or all of them: ", all_linear));
}

/// The linear maps that the targets mean, in the order of modules.
std::vector<NamedLinear> select(const LanguageModel& model, const std::vector<std::string>& targets) {
  const std::vector<NamedLinear> linears = linears_of(model);
  TESSERA_CHECK(!linears.empty(), "the model has no linear maps that adapters could be put on");
  const bool all = targets == std::vector<std::string>{all_linear};
  std::vector<NamedLinear> chosen;
  std::set<std::string> matched;
  for (const NamedLinear& candidate : linears) {
    bool wanted = all && !is_head(candidate.first);
    for (const std::string& target : targets) {
      if (!is_named_module(candidate.first, target)) continue;
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

/// Whether these targets mean others than `chosen` to PEFT, which knows nothing of may_be_adapted().
bool mean_others(const LanguageModel& model, const std::vector<NamedLinear>& chosen,
                 const std::vector<std::string>& targets) {
  std::set<std::string> names;
  for (const auto& [name, linear] : chosen) names.insert(name);
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    for (const std::string& target : targets)
      if (is_named_module(item.key(), target) && !names.contains(item.key())) return true;
  return false;
}

/// Targets that select exactly `chosen`: ends of names where no other module has that end, full names otherwise.
std::vector<std::string> spelled_out(const LanguageModel& model, const std::vector<NamedLinear>& chosen) {
  std::set<std::string> names, targets;
  for (const auto& [name, linear] : chosen) names.insert(name);
  std::set<std::string> ambiguous;
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (!names.contains(item.key())) ambiguous.insert(last_part(item.key()));
  for (const std::string& name : names) targets.insert(ambiguous.contains(last_part(name)) ? name : last_part(name));
  return {targets.begin(), targets.end()};
}

/// Adapters of maps without memory have none either.
bool lack_memory(const std::vector<NamedLinear>& linears) {
  return std::any_of(linears.begin(), linears.end(),
                     [](const NamedLinear& l) { return parallel::is_deferred(l.second->weight); });
}

/// Lets what config.modules_to_save names be trained.
void train_whole(LanguageModel& model, const std::vector<NamedLinear>& adapted, const LoraConfig& config) {
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const std::string& target : config.modules_to_save) {
    bool found = false;
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
    throw InputError(concat("modules_to_save: '", target, "' names no module of the model that has parameters",
                            near ? concat("; did you mean '", *near, "'?") : ""));
  }
  for (const auto& [name, linear] : adapted)
    if (checkpoint::is_saved_whole(name + ".weight", config))
      throw InputError(concat("modules_to_save: ", name,
                              " gets adapters, and would be trained whole, too: leave it out of one of "
                              "--lora_target_modules and --lora_modules_to_save"));
  if (const std::string tied = model.tied_parameter(); !tied.empty() && checkpoint::is_saved_whole(tied, config))
    throw InputError(concat("modules_to_save: ", tied,
                            " is the embeddings' and the head's at once, and PEFT, which trains a copy of one, would "
                            "read what is saved as another model: adapt other modules (--lora_target_modules "
                            "all-linear)"));
}

/// Freezes the model and puts uninitialised adapters on the chosen modules.
void add_adapters(LanguageModel& model, const std::vector<NamedLinear>& chosen, const LoraConfig& config) {
  for (const auto& [name, linear] : linears_of(model))
    if (linear->lora_A)
      throw InputError(
          "the model has LoRA adapters already, which continue to be trained: leave out --lora_r, or merge "
          "them into the model first (--lora_merge)");
  for (at::Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  train_whole(model, chosen, config);
  for (const auto& [name, linear] : chosen) {
    linear->add_lora(name, config.r, config.alpha, config.dropout);
    linear->lora_scale = config.scale();
    const auto device = linear->weight.device();
    linear->lora_A->to(device);
    linear->lora_B->to(device);
  }
}

bool is_conv1d(const std::vector<NamedLinear>& chosen) {
  return std::any_of(chosen.begin(), chosen.end(),
                     [](const NamedLinear& l) { return l.second->layout == nn::WeightLayout::in_out; });
}

/// Copies `stored` over the model's adapters and what is trained beside them; whatever does not fit is listed in one
/// error.
void overwrite_adapters(const LanguageModel& model, const checkpoint::NamedTensors& stored, const std::string& folder) {
  std::map<std::string, at::Tensor> wanted;
  for (const auto& [name, tensor] : adapter_state(model)) wanted.emplace(name, tensor);
  std::vector<std::string> problems;
  const auto problem = [&](const auto&... parts) {
    if (problems.size() == 20) problems.push_back("...");
    if (problems.size() < 20) problems.push_back(concat(parts...));
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  for (const auto& [name, tensor] : stored) {
    const auto place = wanted.find(name);
    if (place == wanted.end()) {
      problem("unexpected tensor ", name);
      continue;
    }
    if (tensor.sizes() != place->second.sizes())
      problem(name, " has shape ", c10::str(tensor.sizes()), ", the model needs ", c10::str(place->second.sizes()));
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

/// Names the modules that adapter tensors belong to; ones that the model lacks are an error.
std::vector<NamedLinear> modules_of(const LanguageModel& model, const std::vector<std::string>& stored,
                                    const std::string& folder) {
  std::set<std::string> names;
  constexpr std::string_view endings[] = {".lora_A.weight", ".lora_B.weight"};
  for (const std::string& name : stored)
    for (const std::string_view ending : endings)
      if (name.ends_with(ending)) names.insert(name.substr(0, name.size() - ending.size()));
  std::vector<NamedLinear> chosen;
  for (const NamedLinear& candidate : linears_of(model))
    if (names.erase(candidate.first) > 0) chosen.push_back(candidate);
  if (!names.empty())
    throw InputError(concat(folder, ": the adapters are for modules that the base model does not have as linear maps: ",
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
  lora.target_modules =
      parse_module_names("lora_target_modules", config.lora_target_modules, concat(", or ", all_linear));
  lora.modules_to_save = parse_module_names("lora_modules_to_save", config.lora_modules_to_save, "");
  std::vector<std::string>& whole = lora.modules_to_save;
  if (!config.vision_tower.empty() && std::find(whole.begin(), whole.end(), projector_module) == whole.end())
    whole.emplace_back(projector_module);
  return lora;
}

LoraConfig apply_lora(LanguageModel& model, LoraConfig config, std::uint64_t seed) {
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
  if (stored.scale() != config.scale())
    throw InputError(concat(folder, ": its adapters are scaled by ", format_real(stored.scale(), 6), " (lora_alpha ",
                            format_real(stored.alpha, 6), ", r ", stored.r, "), this run's by ",
                            format_real(config.scale(), 6), " (lora_alpha ", format_real(config.alpha, 6), ", r ",
                            config.r, "): give the same --lora_r and --lora_alpha"));
  const auto wanted = [&](const std::string& name) { return !model.lies_elsewhere(name); };
  overwrite_adapters(model, checkpoint::read_adapter_weights(folder, wanted), folder);
}

namespace {

/// The base model of an adapter folder, as `load` makes it, with adapters whose values are still to come.
std::shared_ptr<LanguageModel> adapted_model(
    const std::string& folder, const std::function<std::shared_ptr<LanguageModel>(const ModelConfig& base)>& load) {
  const LoraConfig config = checkpoint::read_adapter_config(folder);
  const std::vector<std::string> stored = checkpoint::adapter_names(folder);
  auto model = load(base_of_adapters(checkpoint::base_model_folder(folder, config), config.composition));
  const auto chosen =
      config.targets_from_weights ? modules_of(*model, stored, folder) : select(*model, config.target_modules);
  std::optional<parallel::DeferredScope> scope;
  if (lack_memory(chosen)) scope.emplace();
  add_adapters(*model, chosen, config);
  return model;
}

}  // namespace

std::shared_ptr<LanguageModel> load_adapted_model(const std::string& folder, std::uint64_t seed) {
  auto model = adapted_model(folder, [&](const ModelConfig& base) { return load_language_model(base, seed); });
  overwrite_adapters(*model, checkpoint::read_adapter_weights(folder), folder);
  return model;
}

std::shared_ptr<LanguageModel> load_adapted_model_deferred(const std::string& folder, std::uint64_t seed,
                                                           std::string& weights_folder) {
  return adapted_model(folder,
                       [&](const ModelConfig& base) { return load_model_deferred(base, seed, weights_folder); });
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
  config.fan_in_fan_out = is_conv1d(adapted);
  config.base_model = absolute_path(checkpoint::base_model_folder(folder, config));
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
  const double frozen = model.flops_per_token(0) / 6;  // without attention's share, 6 N
  auto adapters = static_cast<double>(model.trained_elsewhere()), whole = 0.0;
  for (const auto& [name, tensor] : lora_state(model)) adapters += static_cast<double>(nn::whole_numel(tensor));
  for (const auto& [name, tensor] : adapter_state(model)) {  // matrices that flops_per_token counts have gradients
    const std::string module = name.substr(0, name.rfind('.')), kind = last_part(module);
    const bool adapter = kind == "lora_A" || kind == "lora_B";
    if (tensor.dim() == 2 && !adapter && model.may_be_adapted(module) && (is_head(module) || !model.is_embedding(name)))
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
