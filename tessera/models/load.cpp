#include <tessera/models/load.h>

#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/names/module_names.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/read_into.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/core/named_model.h>
#include <tessera/config/model/vocabulary.h>
#include <tessera/config/model/whole_weights.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/lora.h>
#include <tessera/models/registry.h>
#include <tessera/models/vision/compose.h>
#include <tessera/models/vision/llava.h>
#include <tessera/parallel/deferred/deferred.h>
#include <algorithm>
#include <filesystem>
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

/// Whether a parameter belongs to a module, by name.
bool lies_in(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

/// The row with which a table [rows, ...] is extended for more tokens: the mean of its rows, as in transformers'
/// resize_token_embeddings(), but without the noise of 1e-9 of their covariance.
at::Tensor row_to_add(const at::Tensor& rows) { return rows.mean(0, /*keepdim=*/false, at::kDouble).to(at::kFloat); }

/// The weights of a folder. Throws InputError if they are quantized in types that are not supported for weights.
format::SafetensorsFolder open_weights(const std::string& folder) {
  try {
    return checkpoint::open_hf_weights(folder);
  } catch (const InputError& error) {
    const bool of_a_type =
        std::string_view(error.what()).find(" is not supported; supported are ") != std::string::npos;
    const std::string method = of_a_type ? config::quantization_of_folder(folder) : "";
    if (method.empty()) throw;
    throw InputError(config::why_no_quantized_weights(folder, method));
  }
}

/// Matches the tensors of a folder with the model's parameters.
class Matching {
 public:
  Matching(const torch::nn::Module& model, const Value& hf_config, const format::SafetensorsFolder& folder,
           const std::function<bool(const std::string&)>& skip = {}, const BlockChoice* choice = nullptr)
      : architecture_(architectures::architecture_of(hf_config)),
        embedding_(architectures::embedding_parameter(architectures::read_model(hf_config))),
        model_(dynamic_cast<const LanguageModel*>(&model)),
        choice_(choice) {
    const std::string place = std::filesystem::path(folder.paths().front()).parent_path().string();
    rows_now_ = config::vocabulary_of(hf_config);
    rows_before_ = rows_in(place);
    check_prefix();
    for (const auto& item : model.named_parameters())
      if (skip && skip(item.key()))
        skipped_.insert(item.key());
      else
        wanted_.emplace(item.key(), item.value());
    for (const auto& stored : folder.tensors()) match(stored, hf_config);
    tied_head();
    leave_new_ones(folder);
    const std::string quantization = config::quantization_of_folder(place);
    if (!quantization.empty() && !(problems_.empty() && wanted_.empty() && unexpected_.empty()))
      throw InputError(config::why_no_quantized_weights(place, quantization));
    complain(folder);
    if (!renamed_.empty()) log::info(place, ": tensor names have a different prefix than the model's: ", renamed_);
    if (!quantization.empty())
      log::warning(place, ": its weights are not quantized, although its config.json specifies quantization (",
                   quantization, "): the saved config.json will not specify it");
    if (left_aside_ > 0)
      log::warning(folder.paths().front(), ": the weights of multi-token prediction (", left_aside_,
                   left_aside_ == 1 ? " depth" : " depths",
                   ") are ignored, as in transformers, and will not be saved; to train and keep them set "
                   "\"mtp_num_layers\": ",
                   left_aside_, " in its config.json");
  }
  const std::vector<checkpoint::Placement>& placements() const { return placements_; }
  /// Parameter names, in the order of placements().
  const std::vector<std::string>& names() const { return names_; }

 private:
  /// Number of rows of the folder's embedding if the model has more; otherwise 0.
  std::int64_t rows_in(const std::string& place) const {
    const std::string file = path_join(place, "config.json");
    const std::int64_t rows = rows_now_ > 0 && path_exists(file) ? config::vocabulary_of(read_json(file)) : 0;
    return rows < rows_now_ ? rows : 0;
  }

  bool fits(at::IntArrayRef stored, at::IntArrayRef wanted) const {
    if (stored == wanted) return true;
    return rows_before_ > 0 && stored.size() == wanted.size() && !stored.empty() && stored[0] == rows_before_ &&
           wanted[0] == rows_now_ && stored.slice(1) == wanted.slice(1);
  }

  bool is_known(const std::string& name) const {
    return wanted_.contains(name) || skipped_.contains(name) || (model_ != nullptr && model_->lies_elsewhere(name));
  }

  /// Architecture::tensor_name for names with any prefix: wrappers' names, or the base model's, repeated or missing.
  std::string own_name(const format::SafetensorsFolder::Stored& stored, const Value& hf_config) {
    const auto known_as = [&](const std::string& candidate) {
      if (candidate == "lm_head.weight") head_ = &stored;
      return architecture_.tensor_name(candidate, hf_config);
    };
    const std::string &in_file = stored.info.name, bare = without_wrappers(in_file);
    const std::string base = embedding_.substr(0, embedding_.find('.') + 1);
    std::string name = known_as(bare);
    if (choice_ != nullptr || name.empty() || is_known(name)) return note_name(in_file, bare, std::move(name));
    for (const std::string& candidate : {base + bare, bare.substr(bare.find('.') + 1)})
      if (std::string other = known_as(candidate); other.empty() || is_known(other))
        return note_name(in_file, candidate, std::move(other));
    return name;
  }

  std::string note_name(const std::string& in_file, const std::string& read_as, std::string name) {
    if (in_file != read_as && renamed_.empty()) renamed_ = concat(in_file, " is read as ", read_as);
    return name;
  }

  void match(const format::SafetensorsFolder::Stored& stored, const Value& hf_config) {
    std::string name = own_name(stored, hf_config);
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
    else if (!fits(stored.info.shape, place->second.sizes()))
      problems_.push_back(concat(stored.info.name, " has shape ", shape_text(stored.info.shape),
                                 ", but the configuration requires ", shape_text(place->second.sizes())));
    else
      put(stored, place->first, place->second);
    wanted_.erase(place);
  }

  /// Blocks are found by name.
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

  /// Finds a tied tensor, which the folder stores under either of its two names.
  void tied_head() {
    const auto place = wanted_.find(embedding_);
    const auto* head = head_;
    if (place == wanted_.end() || !head || wanted_.contains("lm_head.weight") ||
        !fits(head->info.shape, place->second.sizes()) || (choice_ != nullptr && !choice_->takes(place->first)))
      return;
    put(*head, place->first, place->second);
    wanted_.erase(place);
  }

  /// Accepts a missing head if the folder was saved without it.
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
      log::warning("layer_reduction: other_module_name does not list ", join(not_named),
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
    constexpr std::size_t shown = 100;  // keeps the error for a wrong folder readable
    const std::size_t all = problems_.size();
    if (all > shown) {
      problems_.resize(shown);
      problems_.push_back(concat("... and ", all - shown, " more"));
    }
    throw InputError(concat(folder.paths().front(), folder.sharded() ? " and its other shards" : "",
                            ": the weights do not fit the configuration:\n  ", join(problems_, "\n  ")));
  }

  const architectures::Architecture& architecture_;
  const std::string embedding_;  ///< the parameter that a tied head shares
  const LanguageModel* model_;   ///< null: not a language model
  const BlockChoice* choice_;    ///< null: everything is taken
  std::map<std::string, at::Tensor> wanted_;
  std::set<std::string> skipped_;
  std::vector<checkpoint::Placement> placements_;
  std::vector<std::string> names_, unexpected_, problems_;
  const format::SafetensorsFolder::Stored* head_ = nullptr;  ///< an alternative name for storing a tied embedding
  std::string renamed_;                                      ///< a name that was read as a different one, for the log
  std::int64_t rows_now_ = 0,
               rows_before_ = 0;  ///< rows of embeddings: the model's, and the folder's if it has fewer
  int left_aside_ = 0;            ///< depths of multi-token prediction in the folder but not in the model
};

/// config.json with the run's edits. Throws InputError if it requires something that the family does not have.
Value edited(Value config, const ConfigEdit& edit, const BlockChoice* choice = nullptr) {
  config = config::of_whole_weights(config);
  architectures::prediction_depths(config);
  if (choice != nullptr) config = choice->smaller(std::move(config));
  return edit ? edit(std::move(config)) : config;
}

/// The model of --config_name; newly created weights are never quantized.
Value from_scratch(const ModelConfig& config) {
  Value json = config::model_from_scratch(config);
  if (const std::string quantization = config::quantization_of(json); !quantization.empty())
    log::warning(config.config_name, ": its quantization_config (", quantization,
                 ") is ignored: this run creates unquantized weights");
  return json;
}

std::shared_ptr<CausalLm> causal(const std::shared_ptr<LanguageModel>& model) {
  auto result = std::dynamic_pointer_cast<CausalLm>(model);
  if (!result)
    throw InputError(concat("a model of type \"", model->hf_config().at("model_type").as_string(),
                            "\" is not a causal language model: choose one that is"));
  return result;
}

/// Reads the preparation of images, if the folder specifies it.
void read_preprocessor(LanguageModel& model, const std::string& folder) {
  const std::string file = path_join(folder, "preprocessor_config.json");
  if (auto* const llava = dynamic_cast<Llava*>(&model); llava != nullptr && path_exists(file))
    llava->read_preprocessor(read_json(file));
}

void check_folder(const std::string& folder) {
  if (!is_directory(folder))
    throw InputError(concat("--model_name_or_path ", folder, ": no such folder (nothing is downloaded)"));
}

}  // namespace

Value BlockChoice::smaller(Value hf_config) const {
  const char* key = nullptr;
  for (const char* name : {"num_hidden_layers", "n_layer", "num_layers"})
    if (const Value* value = hf_config.find(name); key == nullptr && value != nullptr && value->is_number()) key = name;
  if (key == nullptr)
    throw InputError("layer_reduction: the model's config.json does not specify its number of layers");
  const std::int64_t all = hf_config.at(key).as_int(), most = *std::max_element(blocks.begin(), blocks.end());
  if (most >= all)
    throw InputError(concat("layer_reduction.teacher_layer names layer ", most, ", but the model has ", all,
                            ", numbered from 0: list layers of the model in --model_name_or_path, or set enabled to "
                            "false if it has been reduced already"));
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
  return build(hf_config, seed);
}

void load_weights(LanguageModel& model, const std::string& folder, const std::shared_ptr<format::ReadSums>& sums,
                  const BlockChoice* choice) {
  load_weights(model, model.hf_config(), folder, sums, choice);
}

void load_weights(torch::nn::Module& module, const Value& hf_config, const std::string& folder,
                  const std::shared_ptr<format::ReadSums>& sums, const BlockChoice* choice) {
  const format::SafetensorsFolder weights = open_weights(folder);
  const Matching matching(module, hf_config, weights, {},
                          choice);  // all problems are reported before the first byte is read
  const at::NoGradGuard no_grad;
  std::vector<checkpoint::Placement> placements = matching.placements();
  for (checkpoint::Placement& place : placements)  // if a table has more rows than are stored, fill only those
    if (!place.stored->info.shape.empty() && place.target.size(0) > place.stored->info.shape[0])
      place.target = place.target.narrow(0, 0, place.stored->info.shape[0]);
  checkpoint::read_into(weights, placements, sums);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const at::Tensor& whole = matching.placements()[i].target;
    const std::int64_t stored = placements[i].target.dim() > 0 ? placements[i].target.size(0) : 0;
    if (whole.dim() > 0 && stored < whole.size(0))
      whole.narrow(0, stored, whole.size(0) - stored).copy_(row_to_add(placements[i].target));
  }
}

WeightSource::WeightSource(const LanguageModel& model, const std::string& folder,
                           const std::function<bool(const std::string&)>& skip,
                           const std::shared_ptr<format::ReadSums>& sums, const BlockChoice* choice)
    : folder_(open_weights(folder)) {
  const Matching matching(model, model.hf_config(), folder_, skip, choice);
  for (std::size_t i = 0; i < matching.names().size(); ++i)
    stored_.emplace(matching.names()[i], matching.placements()[i].stored);
  for (const format::SafetensorsFile& file : folder_.files()) readers_.emplace_back(file, sums);
}

bool WeightSource::read(const std::string& parameter, std::int64_t begin, at::Tensor piece) const {
  const auto found = stored_.find(parameter);
  if (found == stored_.end()) return false;
  const format::TensorInfo& info = found->second->info;
  const std::int64_t there = c10::multiply_integers(info.shape);
  const std::int64_t from_file = std::clamp<std::int64_t>(there - begin, 0, piece.numel());
  if (from_file > 0) readers_[found->second->file].read(info, begin, piece.narrow(0, 0, from_file));
  if (from_file < piece.numel()) {  // added rows
    const at::Tensor rows = at::empty(info.shape, at::kFloat);
    readers_[found->second->file].read(info, 0, rows.view({-1}));
    const at::Tensor row = row_to_add(rows).view({-1});
    for (std::int64_t i = from_file; i < piece.numel();) {
      const std::int64_t at = (begin + i - there) % row.numel(), count = std::min(row.numel() - at, piece.numel() - i);
      piece.narrow(0, i, count).copy_(row.narrow(0, at, count));
      i += count;
    }
  }
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
  const bool initialised = architectures::architecture_of(json).may_be_new || choice != nullptr;
  auto model = build(json, initialised ? std::optional(seed) : std::nullopt);
  read_preprocessor(*model, folder);
  load_weights(*model, folder, {}, choice);
  return model;
}

namespace {

void check_no_overrides(const ModelConfig& config) {
  if (!config.config_overrides.empty())
    throw InputError(
        "config_overrides is for a model trained from scratch (config_name), but model_name_or_path already has "
        "weights");
}

}  // namespace

std::shared_ptr<LanguageModel> load_language_model(const ModelConfig& config, std::uint64_t seed,
                                                   const ConfigEdit& edit, const BlockChoice* choice) {
  if (!config.vision_tower.empty()) return compose_llava(config, seed, edit);
  if (config.model_name_or_path.empty()) return make_language_model(edited(from_scratch(config), edit), seed);
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
  const Value json =
      edited(folder.empty() ? from_scratch(config) : read_json(path_join(folder, "config.json")), edit, choice);
  const bool initialised = folder.empty() || architectures::architecture_of(json).may_be_new || choice != nullptr;
  const auto seed_of_values = initialised ? std::optional(seed) : std::nullopt;
  std::shared_ptr<LanguageModel> model;
  {
    const parallel::DeferredScope scope;
    model = build(json, seed_of_values);
  }
  parallel::materialize(model->buffers());
  if (!folder.empty()) read_preprocessor(*model, folder);
  weights_folder = folder;
  return model;
}

}  // namespace tessera::models
