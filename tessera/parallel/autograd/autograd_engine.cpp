#include <tessera/parallel/autograd/autograd_engine.h>

#include <tessera/base/error.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace tessera::parallel {
namespace {

namespace autograd = torch::autograd;

/// Provides slots for the tensors that this thread saves.
thread_local SavedTensorSource* saved_tensor_source = nullptr;

/// Whether this thread's backward passes are part of another thread's.
thread_local bool part_of_backward = false;

class SlotHooks final : public autograd::SavedVariableHooks {
 public:
  explicit SlotHooks(std::unique_ptr<SavedTensorSlot> slot) : slot_(std::move(slot)) {}
  void call_pack_hook(const at::Tensor& tensor) override { slot_->pack(tensor); }
  at::Tensor call_unpack_hook() override { return slot_->unpack(); }

 private:
  std::unique_ptr<SavedTensorSlot> slot_;
};

class ListeningEngine final : public autograd::Engine {
 public:
  /// Never destroyed, because threads may request the engine while the process exits.
  static ListeningEngine& instance() {
    static ListeningEngine* engine = new ListeningEngine;
    return *engine;
  }

  autograd::variable_list execute(const autograd::edge_list& roots, const autograd::variable_list& inputs,
                                  bool keep_graph, bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    // Not this object's Engine::execute: the device threads belong to the engine that ran first, and backward passes
    // before the installation used the base engine.
    const auto run = [&] {
      return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    };
    const bool outermost = autograd::get_current_graph_task_id() == -1 && !part_of_backward;
    if (!outermost) return run();
    const std::vector<BackwardListener*> listeners = copy_listeners();
    if (listeners.empty()) return run();
    try {
      for (BackwardListener* listener : listeners) listener->backward_begin();
      autograd::variable_list result = run();
      for (BackwardListener* listener : listeners) listener->backward_end();
      return result;
    } catch (...) {
      for (BackwardListener* listener : listeners) listener->backward_failed();
      throw;
    }
  }

  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (saved_tensor_source == nullptr) return nullptr;
    std::unique_ptr<SavedTensorSlot> slot = saved_tensor_source->next();
    return slot ? std::make_unique<SlotHooks>(std::move(slot)) : nullptr;
  }

  void add(BackwardListener* listener) {
    const std::lock_guard lock(mutex_);
    listeners_.push_back(listener);
  }
  void remove(BackwardListener* listener) {
    const std::lock_guard lock(mutex_);
    std::erase(listeners_, listener);
  }

 private:
  std::vector<BackwardListener*> copy_listeners() {
    const std::lock_guard lock(mutex_);
    return listeners_;
  }

  std::mutex mutex_;
  std::vector<BackwardListener*> listeners_;
};

autograd::Engine& engine_stub() { return ListeningEngine::instance(); }

void install_engine() {
  static std::once_flag installed;
  std::call_once(installed, [] {
    if (&autograd::Engine::get_default_engine() != &autograd::Engine::get_base_engine())
      throw Error(
          "another autograd engine is installed in this process (is it a Python process?); data parallelism and saved "
          "tensors need their own");
    autograd::set_default_engine_stub(engine_stub);
  });
}

/// LibTorch has one slot per tensor for hooks on accumulated gradients; this occupies it and runs any number of hooks.
class Hooks final : public autograd::PostAccumulateGradHook {
 public:
  explicit Hooks(std::unique_ptr<autograd::PostAccumulateGradHook> previous) : previous_(std::move(previous)) {}

  void operator()(const autograd::Variable& tensor) override {
    if (previous_) (*previous_)(tensor);
    for (const auto& [id, hook] : hooks_) hook(tensor);
  }

  int add(std::function<void(const at::Tensor&)> hook) {
    hooks_.emplace(next_, std::move(hook));
    return next_++;
  }
  void remove(int id) { hooks_.erase(id); }
  bool any() const { return !hooks_.empty(); }

 private:
  std::unique_ptr<autograd::PostAccumulateGradHook> previous_;
  std::map<int, std::function<void(const at::Tensor&)>> hooks_;
  int next_ = 0;
};

Hooks* find_hooks(const at::Tensor& parameter) {
  if (autograd::impl::get_autograd_meta(parameter) == nullptr) return nullptr;  // never trained
  return dynamic_cast<Hooks*>(autograd::impl::post_acc_grad_hooks(parameter).get());
}

}  // namespace

Subscription listen_to_backward(BackwardListener& listener) {
  install_engine();
  ListeningEngine::instance().add(&listener);
  return Subscription([&listener] { ListeningEngine::instance().remove(&listener); });
}

PartOfBackward::PartOfBackward() : before_(std::exchange(part_of_backward, true)) {}
PartOfBackward::~PartOfBackward() { part_of_backward = before_; }

std::vector<at::Tensor> leaves_behind(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> leaves;
  std::unordered_set<autograd::Node*> seen;
  std::vector<autograd::Node*> open;
  const auto visit = [&](autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& output : outputs)
    if (output.defined() && output.requires_grad()) visit(autograd::impl::gradient_edge(output).function.get());
  while (!open.empty()) {
    autograd::Node* const node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<autograd::AccumulateGrad*>(node)) leaves.push_back(leaf->variable);
    for (const autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return leaves;
}

Subscription after_gradient(const at::Tensor& parameter, std::function<void(const at::Tensor&)> hook) {
  TESSERA_CHECK(parameter.is_leaf() && parameter.requires_grad(), "gradient hooks are for leaves that require grad");
  Hooks* hooks = find_hooks(parameter);
  if (hooks == nullptr) {
    auto made = std::make_unique<Hooks>(std::move(autograd::impl::post_acc_grad_hooks(parameter)));
    hooks = made.get();
    autograd::impl::set_post_acc_grad_hooks(parameter, std::move(made));
  }
  const int id = hooks->add(std::move(hook));
  return Subscription([parameter, id] {
    if (Hooks* present = find_hooks(parameter)) present->remove(id);
  });
}

namespace {

struct GradientEdit : autograd::FunctionPreHook {
  explicit GradientEdit(std::function<at::Tensor(const at::Tensor&)> the_edit) : edit(std::move(the_edit)) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    if (!gradients.at(0).defined()) return gradients;
    return {edit(gradients[0])};
  }
  std::function<at::Tensor(const at::Tensor&)> edit;
};

}  // namespace

Subscription edit_gradient(const at::Tensor& parameter, std::function<at::Tensor(const at::Tensor&)> edit) {
  TESSERA_CHECK(parameter.is_leaf() && parameter.requires_grad(), "gradient hooks are for leaves that require grad");
  // Tensor::remove_hook() would leave an empty hook behind permanently.
  auto& hooks = autograd::impl::hooks(parameter);
  hooks.push_back(std::make_unique<GradientEdit>(std::move(edit)));
  return Subscription([parameter, own = hooks.back().get()] {
    std::erase_if(autograd::impl::hooks(parameter), [own](const auto& hook) { return hook.get() == own; });
  });
}

bool has_gradient_hook(const at::Tensor& parameter) {
  const Hooks* hooks = find_hooks(parameter);
  return hooks != nullptr && hooks->any();
}

SavedTensorSource* exchange_saved_tensor_source(SavedTensorSource* source) {
  if (source != nullptr) install_engine();
  return std::exchange(saved_tensor_source, source);
}

struct SavedTensor::Impl {
  autograd::SavedVariable variable;
};

SavedTensor::SavedTensor() = default;
SavedTensor::SavedTensor(const at::Tensor& tensor)
    : impl_(new Impl{autograd::SavedVariable(tensor, /*is_output=*/false)}) {}
SavedTensor::SavedTensor(SavedTensor&&) noexcept = default;
SavedTensor& SavedTensor::operator=(SavedTensor&&) noexcept = default;
SavedTensor::~SavedTensor() = default;
at::Tensor SavedTensor::unpack() const { return impl_ ? impl_->variable.unpack() : at::Tensor(); }

struct BackwardRoot::Impl {
  autograd::Edge edge;
};

BackwardRoot::BackwardRoot() = default;
BackwardRoot::BackwardRoot(const at::Tensor& output) {
  TESSERA_CHECK(output.requires_grad(), "a backward pass needs a tensor that requires grad");
  impl_.reset(new Impl{autograd::impl::gradient_edge(output)});
}
BackwardRoot::BackwardRoot(BackwardRoot&&) noexcept = default;
BackwardRoot& BackwardRoot::operator=(BackwardRoot&&) noexcept = default;
BackwardRoot::~BackwardRoot() = default;
void BackwardRoot::backward(const at::Tensor& gradient) {
  TESSERA_CHECK(impl_, "a backward pass without a root");
  const std::unique_ptr<Impl> root = std::move(impl_);
  autograd::Engine::get_default_engine().execute({root->edge}, {gradient}, /*keep_graph=*/false,
                                                 /*create_graph=*/false, /*accumulate_grad=*/true, {});
}

int current_backward() { return autograd::get_current_graph_task_id(); }

bool current_backward_keeps_graph() {
  TESSERA_CHECK(current_backward() != -1, "no backward is running on this thread");
  return autograd::get_current_graph_task_keep_graph();
}

void at_end_of_current_backward(std::function<void()> then) {
  TESSERA_CHECK(current_backward() != -1, "no backward is running on this thread");
  autograd::Engine::get_default_engine().queue_callback(std::move(then));
}

}  // namespace tessera::parallel
