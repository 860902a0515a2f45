#include <tessera/parallel/pipeline/layer_chain.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/parallel/dispatch/managed.h>

#include <torch/nn/modules/container/any.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tessera::parallel {
namespace {

using torch::nn::AnyModule;
using torch::nn::AnyValue;

class SequentialChain final : public LayerChain {
 public:
  SequentialChain(torch::nn::SequentialImpl& sequential, std::vector<Layer> layers)
      : LayerChain(sequential, std::move(layers)), modules_(sequential.begin(), sequential.end()) {}

  at::Tensor run(std::size_t first, std::size_t past, const at::Tensor& batch, const at::Tensor& input) override {
    const at::Tensor& entering = first == 0 ? batch : input;
    if (first == past) return entering;
    AnyValue value{at::Tensor(entering)};
    for (std::size_t i = first; i < past; ++i) value = modules_[i].any_forward(std::move(value));
    if (auto* const output = value.try_get<at::Tensor>()) return std::move(*output);
    throw InputError(
        concat("layer '", layers()[past - 1].name, "' returns a ", c10::demangle(value.type_info().name()),
               "; only a single tensor can be passed from stage to stage, and to the loss: cut the model after "
               "another layer (PipelineCut::before), or add a layer after it that returns one tensor"));
  }

  void drop_layers(const std::vector<bool>& kept) override {
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (!kept[i]) modules_[i] = AnyModule();
  }

 private:
  std::vector<AnyModule> modules_;  // empty where dropped
};

class ListedChain final : public LayerChain {
 public:
  ListedChain(torch::nn::Module& root, std::vector<Layer> layers,
              std::vector<std::function<at::Tensor(const at::Tensor&)>> functions)
      : LayerChain(root, std::move(layers)), functions_(std::move(functions)) {}

  at::Tensor run(std::size_t first, std::size_t past, const at::Tensor& batch, const at::Tensor& input) override {
    at::Tensor value = first == 0 ? batch : input;
    for (std::size_t i = first; i < past; ++i) {
      value = functions_[i](value);
      TESSERA_CHECK(value.defined(), "layer '", layers()[i].name, "' returned no tensor");
    }
    return value;
  }

  void drop_layers(const std::vector<bool>& kept) override {
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (!kept[i]) functions_[i] = nullptr;
  }

 private:
  std::vector<std::function<at::Tensor(const at::Tensor&)>> functions_;
};

bool is_below(const std::string& name, const std::string& module) {
  return name == module || (name.starts_with(module) && name[module.size()] == '.');
}

/// Every name must exist, and no layer's module may be inside another's: removing the outer one would remove the inner
/// one, too.
void check_modules(const torch::nn::Module& root, const std::vector<LayerChain::Layer>& layers) {
  std::vector<std::string> known;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) known.push_back(item.key());
  for (const auto& item : root.named_parameters()) known.push_back(item.key());
  std::map<std::string, std::string> layer_of;
  for (const LayerChain::Layer& layer : layers)
    for (const std::string& module : layer.modules) {
      if (std::find(known.begin(), known.end(), module) == known.end()) {
        const auto near = nearest(module, known);
        throw InputError(concat("pipeline: layer '", layer.name, "' names '", module,
                                "', which is not a registered module or parameter",
                                near ? concat("; did you mean '", *near, "'?") : "",
                                " (PipelineLayer::modules; {} means the one with the layer's name)"));
      }
      layer_of.emplace(module, layer.name);
    }
  for (auto outer = layer_of.begin(); outer != layer_of.end(); ++outer)
    for (auto inner = std::next(outer); inner != layer_of.end() && inner->first.starts_with(outer->first); ++inner)
      if (is_below(inner->first, outer->first))
        throw InputError(concat("pipeline: layer '", outer->second, "' has module '", outer->first, "', and layer '",
                                inner->second, "' has '", inner->first,
                                "' inside of it; make each layer name only the modules it uses itself"));
}

}  // namespace

std::unique_ptr<LayerChain> chain_of(torch::nn::SequentialImpl& sequential) {
  if (sequential.is_empty()) throw InputError("pipeline: the torch::nn::Sequential has no layers");
  std::vector<LayerChain::Layer> layers;
  for (const auto& child : sequential.named_children()) layers.push_back({child.key(), {child.key()}});
  return std::make_unique<SequentialChain>(sequential, std::move(layers));
}

std::unique_ptr<LayerChain> chain_of(torch::nn::Module& root, std::vector<PipelineLayer> given) {
  if (given.empty()) throw InputError("pipeline: no layers are given");
  std::vector<LayerChain::Layer> layers;
  std::vector<std::function<at::Tensor(const at::Tensor&)>> functions;
  std::set<std::string> names;
  for (PipelineLayer& layer : given) {
    if (layer.name.empty() || !layer.forward)
      throw InputError(concat("pipeline: layer ", layers.size(),
                              layer.name.empty() ? "" : concat(" '", layer.name, "'"), " has no ",
                              layer.name.empty() ? "name" : "function (PipelineLayer::forward)"));
    if (!names.insert(layer.name).second)
      throw InputError(concat("pipeline: two layers have the name '", layer.name,
                              "'; to use a block twice, list two "
                              "layers with different names and the same module in `modules`"));
    layers.push_back({layer.name, layer.modules.empty() ? std::vector{layer.name} : std::move(layer.modules)});
    functions.push_back(std::move(layer.forward));
  }
  check_modules(root, layers);
  return std::make_unique<ListedChain>(root, std::move(layers), std::move(functions));
}

std::int64_t LayerTensors::parameters(std::size_t layer) const {
  std::int64_t sum = 0;
  for (const Item& item : of_layer[layer])
    if (!item.is_buffer) sum += item.tensor.numel();
  return sum;
}

LayerTensors tensors_of(const LayerChain& chain) {
  const auto& layers = chain.layers();
  LayerTensors result;
  result.of_layer.resize(layers.size());
  std::map<const c10::TensorImpl*, std::string> first_names;
  std::map<const c10::StorageImpl*, std::pair<at::Tensor, std::string>> memory;
  const auto visit = [&](const std::string& name, const at::Tensor& tensor, bool is_buffer) {
    if (managed_storage(tensor) != nullptr)
      throw InputError(concat("pipeline: parameter '", name,
                              "' is already managed by a sharding engine or another pipeline; construct the pipeline "
                              "first, then tessera::Sharded around the remaining module"));
    const std::string& first = first_names.try_emplace(tensor.unsafeGetTensorImpl(), name).first->second;
    bool owned = false;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto& modules = layers[i].modules;
      if (std::none_of(modules.begin(), modules.end(), [&](const std::string& m) { return is_below(name, m); }))
        continue;
      owned = true;
      auto& items = result.of_layer[i];
      if (std::none_of(items.begin(), items.end(), [&](const auto& item) { return item.tensor.is_same(tensor); }))
        items.push_back({first, tensor, is_buffer});
    }
    if (!owned && !is_buffer)
      throw InputError(
          concat("pipeline: parameter '", name,
                 "' does not belong to any layer, so no rank would train it; name it, or its module, in the "
                 "`modules` of the layer that uses it"));
  };
  for (const auto& item : chain.root().named_parameters()) visit(item.key(), item.value(), false);
  for (const auto& item : chain.root().named_buffers()) visit(item.key(), item.value(), true);
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const LayerTensors::Item& item : result.of_layer[i]) {
      if (item.is_buffer || item.tensor.nbytes() == 0 || !item.tensor.has_storage()) continue;
      const auto [at, is_new] =
          memory.try_emplace(item.tensor.storage().unsafeGetStorageImpl(), std::pair(item.tensor, layers[i].name));
      if (!is_new && at->second.second != layers[i].name && !at->second.first.is_same(item.tensor))
        throw InputError(concat("pipeline: parameter '", item.name, "' of layer '", layers[i].name,
                                "' shares memory with a parameter of layer '", at->second.second,
                                "', but they are two tensors with separate gradients; to tie them, register the same "
                                "tensor in both modules"));
    }
  return result;
}

}  // namespace tessera::parallel
