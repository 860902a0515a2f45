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

/// Placeholder for a module of another rank, of the same class name, so that anything that looks for classes (wrap
/// policies) finds them on every rank.
struct Elsewhere : torch::nn::Module {
  Elsewhere(const std::string& class_name, std::string the_text)
      : torch::nn::Module(class_name), text(std::move(the_text)) {}
  at::Tensor forward(const at::Tensor&) { throw InputError(text); }
  std::string text;
};

/// torch::nn::Module can remove a module from its tree, but not a parameter; its list of parameters is only accessible
/// to derived classes.
struct Parameters : torch::nn::Module {
  static torch::OrderedDict<std::string, at::Tensor>& of(torch::nn::Module& module) {
    return module.*(&Parameters::parameters_);
  }
};

struct Place {
  torch::nn::Module* parent;
  std::string name;
};
Place find_place(torch::nn::Module& root, const std::string& path) {
  torch::nn::Module* module = &root;
  std::vector<std::string> names = split(path, '.');
  for (std::size_t i = 0; i + 1 < names.size(); ++i) module = module->named_children()[names[i]].get();
  return {module, names.back()};
}

void register_below(torch::nn::Module& module, const std::string& path, const at::Tensor& parameter,
                    const std::string& text) {
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) {
    module.register_parameter(path, parameter, parameter.requires_grad());
    return;
  }
  const std::string child = path.substr(0, dot);
  const auto children = module.named_children();
  const auto* const there = children.find(child);
  const auto next =
      there != nullptr ? *there : module.register_module(child, std::make_shared<Elsewhere>("Elsewhere", text));
  register_below(*next, path.substr(dot + 1), parameter, text);
}

/// `called`: the module is still called, so it is only removed from the tree.
void replace(torch::nn::Module& parent, const std::string& name, const std::shared_ptr<Elsewhere>& placeholder,
             bool called) {
  const std::shared_ptr<torch::nn::Module> gone = parent.named_children()[name];
  parent.replace_module(name, placeholder);
  if (called) return;
  auto* const sequential = dynamic_cast<torch::nn::SequentialImpl*>(&parent);
  if (sequential == nullptr) return;
  for (torch::nn::AnyModule& module : *sequential)
    if (module.ptr() == gone) module = torch::nn::AnyModule(placeholder);
}

}  // namespace

/// Takes over the parameters and buffers of a dropped layer: they keep their addresses but have no memory.
class LetGo::Absent final : public Materializer {
 public:
  explicit Absent(std::string text) : text_(std::move(text)) {}

  void enter(std::span<const std::size_t>, bool, const char* op) override {
    throw InputError(concat("operator ", op, ": ", text_));
  }
  void leave(std::span<const std::size_t>) noexcept override {}

  void take(const at::Tensor& tensor) {
    storages_.push_back(
        std::make_unique<ManagedStorage>(*this, 0, tensor.numel(), tensor.scalar_type(), tensor.device(), text_));
    std::vector<std::int64_t> strides(static_cast<std::size_t>(tensor.dim()), 1);
    for (std::size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * tensor.size(static_cast<int>(d));
    storages_.back()->adopt(tensor, 0, tensor.sizes(), strides);
  }

 private:
  std::string text_;
  std::vector<std::unique_ptr<ManagedStorage>> storages_;
};

LetGo::LetGo(LayerChain& chain, const LayerTensors& tensors, const std::vector<bool>& kept,
             const std::vector<std::string>& place_of) {
  std::set<const c10::TensorImpl*> needed;
  std::set<std::string> needed_modules;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    for (const auto& item : tensors.of_layer[i]) needed.insert(item.tensor.unsafeGetTensorImpl());
    needed_modules.insert(chain.layers()[i].modules.begin(), chain.layers()[i].modules.end());
  }
  std::set<std::string> taken;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) continue;
    const std::string text = concat("layer '", chain.layers()[i].name, "' of a pipeline is in ", place_of[i],
                                    "; this rank has released it: run batches through the pipeline");
    for (const std::string& module : chain.layers()[i].modules) {
      if (needed_modules.count(module) != 0 || !taken.insert(module).second) continue;
      const Place place = find_place(chain.root(), module);
      const auto children = place.parent->named_children();
      const auto* const child = children.find(place.name);
      if (child == nullptr) {  // a parameter
        auto& parameters = Parameters::of(*place.parent);
        if (needed.count(parameters[place.name].unsafeGetTensorImpl()) == 0) parameters.erase(place.name);
        continue;
      }
      const auto placeholder = std::make_shared<Elsewhere>((*child)->name(), text);
      for (const auto& parameter : (*child)->named_parameters())
        if (needed.count(parameter.value().unsafeGetTensorImpl()) != 0)
          register_below(*placeholder, parameter.key(), parameter.value(), text);
      replace(*place.parent, place.name, placeholder, chain.needs_batch());
    }
    for (const auto& item : tensors.of_layer[i]) {
      if (needed.count(item.tensor.unsafeGetTensorImpl()) != 0 || managed_storage(item.tensor) != nullptr) continue;
      if (absent_.size() <= i) absent_.resize(i + 1);
      if (absent_[i] == nullptr) absent_[i] = std::make_unique<Absent>(text);
      absent_[i]->take(item.tensor);
    }
  }
  chain.drop_layers(kept);
}

LetGo::~LetGo() = default;

}  // namespace tessera::parallel
