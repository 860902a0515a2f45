#include <tessera/models/load.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/read_into.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/core/model_presets.h>
#include <tessera/config/model/prediction_depths.h>
#include <tessera/models/lora.h>
#include <tessera/models/registry.h>
#include <tessera/models/vision/compose.h>
#include <tessera/models/vision/llava.h>
#include <tessera/parallel/deferred/deferred.h>
#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace tessera::models {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  std::string out = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) out += concat(i ? ", " : "", sizes[i]);
  return out + "]";
}

/// Whether a parameter's name lies below a module's.
bool lies_in(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

/// The tensors of a folder matched with the parameters they are for.
class Matching {
 public:
  Matching(const torch::nn::Module& model, const Value& hf_config, const format::SafetensorsFolder& folder,
           const std::function<bool(const std::string&)>& skip = {}, const BlockChoice* choice = nullptr)
      : architecture_(architecture_of(hf_config)), model_(dynamic_cast<const LanguageModel*>(&model)), choice_(choice) {
    check_prefix();
    for (const auto& item : model.named_parameters())
      if (skip && skip(item.key()))
        skipped_.insert(item.key());
      else
        wanted_.emplace(item.key(), item.value());
    for (const auto& stored : folder.tensors()) match(stored, hf_config);
    tied_head(folder);
    leave_new_ones(folder);
    complain(folder);
    if (left_aside_ > 0)
      log::warning(folder.paths().front(), ": the weights of multi-token prediction (", left_aside_,
                   left_aside_ == 1 ? " depth" : " depths",
                   ") are left aside, as transformers does: what is saved has none; to train and keep them set "
                   "\"mtp_num_layers\": ",
                   left_aside_, " in its config.json");
  }
  const std::vector<checkpoint::Placement>& placements() const { return placements_; }
  /// Parameter names, in the order of placements().
  const std::vector<std::string>& names() const { return names_; }

 private:
  void match(const format::SafetensorsFolder::Stored& stored, const Value& hf_config) {
    std::string name = architecture_.tensor_name(stored.info.name, hf_config);
    if (choice_ != nullptr && !name.empty()) {
      const auto renamed = choice_->renamed(name);
      if (!renamed) return;
      name = *renamed;
    }
    if (name.empty()) {
      if (stored.info.name.starts_with("model.layers.") && stored.info.name.ends_with(".eh_proj.weight")) ++left_aside_;
      return;
    }
    const auto place = wanted_.find(name);
    if (place == wanted_.end()) {
      if (skipped_.contains(name)) return;
      if (model_ == nullptr || !model_->lies_elsewhere(name)) unexpected_.push_back(stored.info.name);
      return;
    }
    if (!c10::isFloatingType(checkpoint::scalar_type(stored.info.dtype)))
      problems_.push_back(concat(stored.info.name, " has type ", format::dtype_name(stored.info.dtype),
                                 "; weights are floating-point numbers"));
    else if (place->second.sizes() != stored.info.shape)
      problems_.push_back(concat(stored.info.name, " has shape ", shape_text(stored.info.shape),
                                 ", the configuration says ", shape_text(place->second.sizes())));
    else
      put(stored, place->first, place->second);
    wanted_.erase(place);
  }

  /// Blocks are looked for by their names.
  void check_prefix() const {
    if (choice_ == nullptr || model_ == nullptr) return;
    const std::string first = model_->parts().front().name, prefix = first.substr(0, first.rfind('.'));
    if (prefix != choice_->prefix)
      throw InputError(concat("layer_reduction.module_name_prefix is ", choice_->prefix,
                              ", but the model's blocks are ", prefix, ".0, ...: give ", prefix));
  }

  void put(const format::SafetensorsFolder::Stored& stored, const std::string& name, const at::Tensor& target) {
    placements_.push_back({&stored, target});
    names_.push_back(name);
  }

  /// A tied tensor stands in the folder under one of its two names.
  void tied_head(const format::SafetensorsFolder& folder) {
    const auto place = wanted_.find(architecture_.embedding);
    const auto* head = folder.find("lm_head.weight");
    if (place == wanted_.end() || !head || wanted_.contains("lm_head.weight") ||
        place->second.sizes() != head->info.shape || (choice_ != nullptr && !choice_->takes(place->first)))
      return;
    put(*head, place->first, place->second);
    wanted_.erase(place);
  }

  /// A head that the model was saved without.
  void leave_new_ones(const format::SafetensorsFolder& folder) {
    std::vector<std::string> fresh, not_named;
    for (const auto& [name, parameter] : wanted_)
      if (choice_ != nullptr && !choice_->takes(name))
        not_named.push_back(name);
      else if (architecture_.may_be_new && architecture_.may_be_new(name))
        fresh.push_back(name);
    for (const std::string& name : fresh) wanted_.erase(name);
    for (const std::string& name : not_named) wanted_.erase(name);
    if (!fresh.empty())
      log::warning(folder.paths().front(), ": has no ", join(fresh), ": newly initialised, to be trained");
    if (!not_named.empty())
      log::warning("layer_reduction: other_module_name does not name ", join(not_named),
                   ": newly initialised, to be trained");
  }

  void complain(const format::SafetensorsFolder& folder) {
    const auto and_nearest = [](const std::string& name, const std::vector<std::string>& others) {
      const auto near = nearest(name, others);
      return near ? concat(" (nearest: ", *near, ")") : "";
    };
    std::vector<std::string> missing;
    for (const auto& [name, parameter] : wanted_) missing.push_back(name);
    for (const auto& [name, parameter] : wanted_)
      problems_.push_back(
          concat("missing tensor ", name, " ", shape_text(parameter.sizes()), and_nearest(name, unexpected_)));
    for (const std::string& name : unexpected_)
      problems_.push_back(concat("unexpected tensor ", name, and_nearest(name, missing)));
    if (problems_.empty()) return;
    constexpr std::size_t shown = 100;  // an error about a wrong folder stays readable
    const std::size_t all = problems_.size();
    if (all > shown) {
      problems_.resize(shown);
      problems_.push_back(concat("... and ", all - shown, " more"));
    }
    throw InputError(concat(folder.paths().front(), folder.sharded() ? " and its other shards" : "",
                            ": the weights do not fit the configuration:\n  ", join(problems_, "\n  ")));
  }

  const Architecture& architecture_;
  const LanguageModel* model_;  ///< null: another kind of module
  const BlockChoice* choice_;   ///< null: all is taken
  std::map<std::string, at::Tensor> wanted_;
  std::set<std::string> skipped_;
  std::vector<checkpoint::Placement> placements_;
  std::vector<std::string> names_, unexpected_, problems_;
  int left_aside_ = 0;  ///< depths of multi-token prediction that the folder has and the model does not
};

/// config.json as the run wants it. Throws InputError where it asks for what the family does not have.
Value edited(Value config, const ConfigEdit& edit, const BlockChoice* choice = nullptr) {
  config::prediction_depths(config);
  if (choice != nullptr) config = choice->smaller(std::move(config));
  return edit ? edit(std::move(config)) : config;
}

std::shared_ptr<CausalLm> causal(const std::shared_ptr<LanguageModel>& model) {
  auto result = std::dynamic_pointer_cast<CausalLm>(model);
  if (!result)
    throw InputError(concat("a model of type \"", model->hf_config().at("model_type").as_string(),
                            "\" does not continue texts: name a causal language model"));
  return result;
}

/// How images are to be prepared, where the folder says it.
void read_preprocessor(LanguageModel& model, const std::string& folder) {
  const std::string file = path_join(folder, "preprocessor_config.json");
  if (auto* const llava = dynamic_cast<Llava*>(&model); llava != nullptr && path_exists(file))
    llava->read_preprocessor(read_json(file));
}

void check_folder(const std::string& folder) {
  if (!is_directory(folder)) throw InputError(concat("model_name_or_path ", folder, ": no such folder"));
}

}  // namespace

Value BlockChoice::smaller(Value hf_config) const {
  const char* key = nullptr;
  for (const char* name : {"num_hidden_layers", "n_layer", "num_layers"})
    if (const Value* value = hf_config.find(name); key == nullptr && value != nullptr && value->is_number()) key = name;
  if (key == nullptr) throw InputError("layer_reduction: the model's config.json does not say how many layers it has");
  const std::int64_t all = hf_config.at(key).as_int(), most = *std::max_element(blocks.begin(), blocks.end());
  if (most >= all)
    throw InputError(concat("layer_reduction.teacher_layer names layer ", most, ", but the model has ", all,
                            ", numbered from 0: name layers of the model in --model_name_or_path, or set enabled to "
                            "false where it has been reduced already"));
  hf_config.set(key, Value::of(static_cast<std::int64_t>(blocks.size())));
  if (const Value* types = hf_config.find("layer_types");
      types != nullptr && types->is_array() && static_cast<std::int64_t>(types->items().size()) == all) {
    Value kept = Value::make_array();
    for (const std::int64_t block : blocks) kept.push_back(types->items()[static_cast<std::size_t>(block)]);
    hf_config.set("layer_types", std::move(kept));
  }
  return hf_config;
}

std::optional<std::string> BlockChoice::renamed(const std::string& name) const {
  if (!lies_in(name, prefix)) return takes(name) ? std::optional(name) : std::nullopt;
  const std::size_t begin = prefix.size() + 1, dot = name.find('.', begin);
  const auto number = dot == std::string::npos ? std::nullopt : parse_int(name.substr(begin, dot - begin));
  if (!number) return std::nullopt;
  const auto found = std::find(blocks.begin(), blocks.end(), *number);
  if (found == blocks.end()) return std::nullopt;
  return concat(prefix, ".", found - blocks.begin(), name.substr(dot));
}

bool BlockChoice::takes(const std::string& name) const {
  if (lies_in(name, prefix)) return true;
  return std::any_of(others.begin(), others.end(), [&](const std::string& module) { return lies_in(name, module); });
}

std::shared_ptr<LanguageModel> make_language_model(const Value& hf_config, std::uint64_t seed) {
  return architecture_of(hf_config).make(hf_config, seed);
}

void load_weights(LanguageModel& model, const std::string& folder, const std::shared_ptr<format::ReadSums>& sums,
                  const BlockChoice* choice) {
  load_weights(model, model.hf_config(), folder, sums, choice);
}

void load_weights(torch::nn::Module& module, const Value& hf_config, const std::string& folder,
                  const std::shared_ptr<format::ReadSums>& sums, const BlockChoice* choice) {
  const format::SafetensorsFolder weights = checkpoint::open_hf_weights(folder);
  const Matching matching(module, hf_config, weights, {},
                          choice);  // every complaint comes before the first byte is read
  const at::NoGradGuard no_grad;
  checkpoint::read_into(weights, matching.placements(), sums);
}

WeightSource::WeightSource(const LanguageModel& model, const std::string& folder,
                           const std::function<bool(const std::string&)>& skip,
                           const std::shared_ptr<format::ReadSums>& sums, const BlockChoice* choice)
    : folder_(checkpoint::open_hf_weights(folder)) {
  const Matching matching(model, model.hf_config(), folder_, skip, choice);
  for (std::size_t i = 0; i < matching.names().size(); ++i)
    stored_.emplace(matching.names()[i], matching.placements()[i].stored);
  for (const format::SafetensorsFile& file : folder_.files()) readers_.emplace_back(file, sums);
}

bool WeightSource::read(const std::string& parameter, std::int64_t begin, at::Tensor piece) const {
  const auto found = stored_.find(parameter);
  if (found == stored_.end()) return false;
  readers_[found->second->file].read(found->second->info, begin, piece);
  return true;
}

void fill_parameter(const std::string& name, const at::Tensor& parameter, const WeightSource* weights) {
  if (!parallel::is_deferred(parameter)) return;
  const at::NoGradGuard no_grad;
  const at::Tensor values = weights != nullptr ? at::empty({parameter.numel()}, parameter.scalar_type()) : at::Tensor();
  if (weights == nullptr || !weights->read(name, 0, values)) return parallel::materialize({parameter});
  parallel::materialize_empty(parameter);
  at::Tensor(parameter.detach()).copy_(values.view(parameter.sizes()));
}

void fill_parameters(LanguageModel& model, const WeightSource* weights) {
  for (const auto& item : model.named_parameters()) fill_parameter(item.key(), item.value(), weights);
}

std::shared_ptr<LanguageModel> load_language_folder(const std::string& folder, std::uint64_t seed,
                                                    const ConfigEdit& edit, const BlockChoice* choice) {
  check_folder(folder);
  if (checkpoint::is_adapter_folder(folder)) return load_adapted_model(folder, seed);
  const Value json = edited(read_json(path_join(folder, "config.json")), edit, choice);
  const Architecture& architecture = architecture_of(json);
  const bool initialised = architecture.may_be_new || choice != nullptr;
  auto model = architecture.make(json, initialised ? std::optional(seed) : std::nullopt);
  read_preprocessor(*model, folder);
  load_weights(*model, folder, {}, choice);
  return model;
}

namespace {

void check_no_overrides(const ModelConfig& config) {
  if (!config.config_overrides.empty())
    throw InputError(
        "config_overrides changes a model that starts from scratch (config_name); model_name_or_path has weights "
        "already");
}

}  // namespace

std::shared_ptr<LanguageModel> load_language_model(const ModelConfig& config, std::uint64_t seed,
                                                   const ConfigEdit& edit, const BlockChoice* choice) {
  if (!config.vision_tower.empty()) return compose_llava(config, seed, edit);
  if (config.model_name_or_path.empty())
    return make_language_model(edited(config::model_from_scratch(config), edit), seed);
  check_no_overrides(config);
  return load_language_folder(config.model_name_or_path, seed, edit, choice);
}

std::shared_ptr<CausalLm> load_model(const ModelConfig& config, std::uint64_t seed) {
  return causal(load_language_model(config, seed));
}
std::shared_ptr<CausalLm> load_folder(const std::string& folder) { return causal(load_language_folder(folder)); }
std::shared_ptr<CausalLm> make_model(const Value& hf_config, std::uint64_t seed) {
  return causal(make_language_model(hf_config, seed));
}

std::shared_ptr<LanguageModel> load_model_deferred(const ModelConfig& config, std::uint64_t seed,
                                                   std::string& weights_folder, const ConfigEdit& edit,
                                                   const BlockChoice* choice) {
  const std::string& folder = config.model_name_or_path;
  weights_folder.clear();
  if (!config.vision_tower.empty()) return compose_llava(config, seed, edit);
  if (!folder.empty()) check_no_overrides(config);
  if (!folder.empty()) check_folder(folder);
  if (!folder.empty() && checkpoint::is_adapter_folder(folder))
    return load_adapted_model_deferred(folder, seed, weights_folder);
  const Value json = edited(
      folder.empty() ? config::model_from_scratch(config) : read_json(path_join(folder, "config.json")), edit, choice);
  const bool initialised = folder.empty() || architecture_of(json).may_be_new || choice != nullptr;
  const auto seed_of_values = initialised ? std::optional(seed) : std::nullopt;
  std::shared_ptr<LanguageModel> model;
  {
    const parallel::DeferredScope scope;
    model = architecture_of(json).make(json, seed_of_values);
  }
  parallel::materialize(model->buffers());
  if (!folder.empty()) read_preprocessor(*model, folder);
  weights_folder = folder;
  return model;
}

}  // namespace tessera::models
