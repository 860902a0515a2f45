#include <tessera/models/load.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>
#include <map>

namespace tessera::models {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  std::string out = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) out += concat(i ? ", " : "", sizes[i]);
  return out + "]";
}

/// At most a handful of names, so that an error about a wrong folder stays readable.
void add_problem(std::vector<std::string>& problems, const std::string& text) {
  if (problems.size() < 20)
    problems.push_back(text);
  else if (problems.size() == 20)
    problems.push_back("...");
}

}  // namespace

std::shared_ptr<CausalLm> make_model(const Value& hf_config, std::uint64_t seed) {
  return architecture_of(hf_config).make(hf_config, seed);
}

void load_weights(CausalLm& model, const std::string& folder) {
  const Architecture& architecture = architecture_of(model.hf_config());
  std::map<std::string, at::Tensor> wanted;
  for (const auto& item : model.named_parameters()) wanted[item.key()] = item.value();
  const at::NoGradGuard no_grad;
  std::vector<std::string> problems;
  for (const auto& [name_in_file, tensor] : checkpoint::read_hf_weights(folder)) {
    const std::string name = architecture.tensor_name(name_in_file, model.hf_config());
    if (name.empty()) continue;
    const auto place = wanted.find(name);
    if (place == wanted.end()) {
      add_problem(problems, concat("unexpected tensor ", name_in_file));
      continue;
    }
    if (place->second.sizes() != tensor.sizes())
      add_problem(problems, concat(name_in_file, " has shape ", shape_text(tensor.sizes()), ", the configuration says ",
                                   shape_text(place->second.sizes())));
    else
      place->second.copy_(tensor);
    wanted.erase(place);
  }
  for (const auto& [name, parameter] : wanted)
    add_problem(problems, concat("missing tensor ", name, " ", shape_text(parameter.sizes())));
  if (!problems.empty())
    throw InputError(concat(folder, ": the weights do not fit the configuration:\n  ", join(problems, "\n  ")));
}

std::shared_ptr<CausalLm> load_model(const ModelConfig& config, std::uint64_t seed) {
  if (!config.model_name_or_path.empty()) {
    const std::string& folder = config.model_name_or_path;
    if (!config.config_overrides.empty())
      throw InputError(
          "config_overrides changes a model that starts from scratch (config_name); model_name_or_path has weights "
          "already");
    if (!is_directory(folder)) throw InputError(concat("model_name_or_path ", folder, ": no such folder"));
    const Value json = read_json(path_join(folder, "config.json"));
    auto model = architecture_of(json).make(json, std::nullopt);
    load_weights(*model, folder);
    return model;
  }
  if (config.config_name.empty())
    throw InputError("no model: give model_name_or_path (a folder) or config_name (config.json or a preset)");
  const std::string& name = config.config_name;
  const std::string path = is_directory(name) ? path_join(name, "config.json") : name;
  const Value json = path_exists(path) ? read_json(path) : preset(name);
  return make_model(with_overrides(json, config.config_overrides), seed);
}

}  // namespace tessera::models
