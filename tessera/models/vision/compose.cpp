#include <tessera/models/vision/compose.h>

#include <ATen/ATen.h>

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/config_value.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/peft.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/core/named_model.h>
#include <tessera/config/model/vision_config.h>
#include <tessera/config/model/whole_weights.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/format/torch/torch_to_hf.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

namespace tessera::models {
namespace {

using checkpoint::NamedTensors;

at::Tensor tensor_of(const format::TensorSource& source) {
  const std::span<const std::byte> bytes = source.bytes();
  const at::Tensor tensor = at::empty(source.shape, checkpoint::scalar_type(source.dtype));
  TESSERA_CHECK(tensor.nbytes() == bytes.size(), source.name, " has ", bytes.size(), " bytes for ", tensor.nbytes());
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(tensor.mutable_data_ptr()));
  return tensor;
}

/// The tensors of a folder or a file, in safetensors or torch.save's format, whose names satisfy `wanted`.
NamedTensors tensors_of(const std::string& path, bool (*wanted)(const std::string& name)) {
  NamedTensors tensors;
  if (path.ends_with(".safetensors")) {
    const format::SafetensorsFile file(path);
    for (const format::TensorInfo& info : file.tensors())
      if (wanted(info.name)) tensors.emplace_back(info.name, checkpoint::read_tensor(file, info));
    return tensors;
  }
  const bool folder_of_safetensors =
      is_directory(path) && (path_exists(path_join(path, "model.safetensors")) ||
                             path_exists(path_join(path, "model.safetensors.index.json")));
  if (!folder_of_safetensors && format::is_torch_weights(path)) {
    for (const format::TensorSource& source : format::read_torch_weights(path, "", /*keep_tied=*/true).tensors)
      if (wanted(source.name)) tensors.emplace_back(source.name, tensor_of(source));
    return tensors;
  }
  const format::SafetensorsFolder folder = checkpoint::open_hf_weights(path);
  for (const auto& stored : folder.tensors())
    if (wanted(stored.info.name))
      tensors.emplace_back(stored.info.name, checkpoint::read_tensor(folder.files()[stored.file], stored.info));
  return tensors;
}

/// Overwrites the parameters of `module`; `renamed` returns the parameter of a tensor ("": none).
void overwrite(torch::nn::Module& module, const NamedTensors& tensors, std::string (*renamed)(const std::string& name),
               const std::string& path) {
  std::map<std::string, at::Tensor> missing;
  for (const auto& item : module.named_parameters()) missing.emplace(item.key(), item.value());
  std::vector<std::string> problems;
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const std::string own = renamed(name);
    const auto place = missing.find(own);
    if (place == missing.end()) {
      if (!own.empty()) problems.push_back(concat("unexpected tensor ", name));
      continue;
    }
    if (tensor.sizes() != place->second.sizes() || !tensor.is_floating_point())
      problems.push_back(concat(name, " is ", c10::str(tensor.sizes()), " of ", c10::toString(tensor.scalar_type()),
                                ", but the configuration requires ", c10::str(place->second.sizes())));
    else
      place->second.copy_(tensor);
    missing.erase(place);
  }
  for (const auto& [name, parameter] : missing) problems.push_back(concat("missing tensor ", name));
  if (problems.size() > 20) {
    problems.resize(20);
    problems.push_back("...");
  }
  if (!problems.empty()) throw InputError(concat(path, ": the weights do not fit:\n  ", join(problems, "\n  ")));
}

bool is_tower_tensor(const std::string& name) {
  return name.starts_with("vision_model.") && !name.ends_with(".position_ids");
}
std::string same_name(const std::string& name) { return name; }

constexpr std::string_view theirs = "mm_projector.", huggings = "multi_modal_projector.";

constexpr const char *tower_key = "mm_vision_tower", *type_key = "mm_projector_type",
                     *layer_key = "mm_vision_select_layer", *feature_key = "mm_vision_select_feature";

bool is_projector_tensor(const std::string& name) {
  return name.find(theirs) != std::string::npos || name.find(huggings) != std::string::npos;
}
/// Initializes weights and biases from U(-1/sqrt(in), 1/sqrt(in)), like torch.nn.Linear and therefore LLaVA's
/// projectors.
void initialise(LlavaProjector& projector, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (const auto& map : projector.named_children()) {
    const double bound = 1 / std::sqrt(static_cast<double>(dynamic_cast<Linear&>(*map.value()).in_features()));
    for (auto& item : map.value()->named_parameters(/*recurse=*/false))
      item.value().uniform_(-bound, bound, generator_by_name(seed, concat(huggings, map.key(), ".", item.key())));
  }
}

/// LLaVA's Sequential numbers maps and activations: 0, 2, 4, ...; a single map has no number.
std::string projector_name(const std::string& name) {
  if (const auto at = name.find(huggings); at != std::string::npos) return name.substr(at + huggings.size());
  const std::string rest = name.substr(name.find(theirs) + theirs.size());
  const auto dot = rest.find('.');
  if (dot == std::string::npos) return concat("linear_1.", rest);
  const auto number = parse_int(rest.substr(0, dot));
  return number && *number % 2 == 0 ? concat("linear_", *number / 2 + 1, rest.substr(dot)) : rest;
}

}  // namespace

void load_projector(LlavaProjector& projector, const std::string& given) {
  std::string path = given;
  const auto slash = path.rfind('/');
  if (!path_exists(path) && slash != std::string::npos && is_directory(path.substr(0, slash)))
    path = path.substr(0, slash);  // LLaVA writes the projector alone there; we write the whole model
  if (!path_exists(path)) throw InputError(concat("--pretrain_mm_mlp_adapter ", given, ": no such file"));
  const NamedTensors tensors = tensors_of(path, is_projector_tensor);
  if (tensors.empty()) throw InputError(concat("--pretrain_mm_mlp_adapter ", path, ": it contains no projector"));
  overwrite(projector, tensors, projector_name, path);
}

std::shared_ptr<Llava> compose_llava(const ModelConfig& config, std::uint64_t seed, const ConfigEdit& edit) {
  const std::string &folder = config.model_name_or_path, &tower = config.vision_tower;
  if (!is_directory(tower) || !path_exists(path_join(tower, "config.json")))
    throw InputError(concat("--vision_tower ", tower,
                            ": no such folder with a config.json; nothing is downloaded: "
                            "`hf download openai/clip-vit-large-patch14-336 --local-dir FOLDER`"));
  if (!folder.empty() && checkpoint::is_adapter_folder(folder)) {
    const bool composed = !checkpoint::read_adapter_config(folder).composition.is_null();
    throw InputError(concat("--vision_tower: ", folder, " contains adapters",
                            composed ? ", whose config.json specifies their base's tower: remove --vision_tower"
                                     : " of a model without image input: merge them first (--lora_merge)"));
  }
  Value language = config::of_whole_weights(folder.empty() ? config::model_from_scratch(config)
                                                           : read_json(path_join(folder, "config.json")));
  if (edit) language = edit(std::move(language));
  const bool whole = architectures::sees_images(language);
  const auto model = std::make_shared<Llava>(
      whole ? language : config::compose_llava_config(language, read_json(path_join(tower, "config.json")), config),
      seed);
  if (whole && !folder.empty())
    load_weights(*model, folder);
  else if (!folder.empty())
    load_weights(*model->language_model, model->language_model->hf_config(), folder);
  overwrite(*model->vision_tower, tensors_of(tower, is_tower_tensor), same_name, tower);
  // A model that already has image input was trained with its own folder's preprocessing, whichever tower it gets.
  const std::string own = path_join(folder, checkpoint::kPreprocessorFile);
  const bool keeps_own = whole && !folder.empty() && path_exists(own);
  if (const std::string file = keeps_own ? own : path_join(tower, checkpoint::kPreprocessorFile); path_exists(file))
    model->read_preprocessor(read_json(file));
  if (!config.pretrain_mm_mlp_adapter.empty())
    load_projector(*model->multi_modal_projector, config.pretrain_mm_mlp_adapter);
  else if (!whole)
    initialise(*model->multi_modal_projector, seed);
  return model;
}

Value describe_composition(const Value& hf_config, const ModelConfig& config) {
  if (config.vision_tower.empty()) return {};
  Value json = hf_config;
  json.set(tower_key, Value::of(absolute_path(config.vision_tower)));
  // As in the model: if its folder already has image input, flags have no effect. Defaults are transformers'.
  const Value *const type = architectures::given(hf_config, type_key),
                     *const layer = architectures::given(hf_config, "vision_feature_layer"),
                     *const strategy = architectures::given(hf_config, "vision_feature_select_strategy");
  const bool full = strategy != nullptr && strategy->as_string() == "full";
  json.set(type_key, type ? *type : Value::of("mlp2x_gelu"));
  json.set(layer_key, layer ? *layer : Value::of(-2));
  json.set(feature_key, Value::of(full ? "cls_patch" : "patch"));
  return json;
}

ModelConfig base_of_adapters(const std::string& language_folder, const Value& composition) {
  ModelConfig base;
  base.model_name_or_path = language_folder;
  if (composition.is_null()) return base;
  base.vision_tower = composition.at(tower_key).as_string();
  if (const Value* type = architectures::given(composition, type_key)) base.mm_projector_type = type->as_string();
  if (const Value* layer = architectures::given(composition, layer_key)) base.mm_vision_select_layer = layer->as_int();
  if (const Value* feature = architectures::given(composition, feature_key))
    base.mm_vision_select_feature = feature->as_string();
  return base;
}

bool is_of_projector(const std::string& parameter) { return parameter.starts_with(huggings); }

bool is_composed(const ModelConfig& config) {
  if (!config.vision_tower.empty()) return true;
  const std::string& folder = config.model_name_or_path;
  return !folder.empty() && checkpoint::is_adapter_folder(folder) &&
         !checkpoint::read_adapter_config(folder).composition.is_null();
}

void choose_trained_parts(LanguageModel& model, const ModelConfig& config) {
  const bool any = config.tune_mm_mlp_adapter || config.freeze_backbone || config.freeze_mm_mlp_adapter;
  if (!any) return;
  auto* const llava = dynamic_cast<Llava*>(&model);
  if (llava == nullptr)
    throw InputError(concat("--",
                            config.tune_mm_mlp_adapter ? "tune_mm_mlp_adapter"
                            : config.freeze_backbone   ? "freeze_backbone"
                                                       : "freeze_mm_mlp_adapter",
                            ": a model of type \"", model.hf_config().at("model_type").as_string(),
                            "\" has no image input: set a tower with --vision_tower, or remove it"));
  const auto freeze = [](const torch::nn::Module& part) {
    for (at::Tensor& parameter : part.parameters()) parameter.set_requires_grad(false);
  };
  if (config.tune_mm_mlp_adapter || config.freeze_backbone) freeze(*llava->language_model);
  if (config.freeze_mm_mlp_adapter) freeze(*llava->multi_modal_projector);
}

}  // namespace tessera::models
