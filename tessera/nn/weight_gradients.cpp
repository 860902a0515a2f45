#include <tessera/nn/weight_gradients.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <tessera/base/error.h>

namespace tessera::nn {
namespace {

namespace autograd = torch::autograd;

thread_local c10::intrusive_ptr<WeightGradients> current_gradients;

/// A part of an operator's backward as a node of a separate graph.
class LatePart final : public autograd::Node {
 public:
  /// Takes the number of the operator's own node: parts run in the order in which the nodes ran.
  LatePart(const autograd::Node& node, autograd::edge_list edges, const at::Tensor& start,
           std::function<std::vector<at::Tensor>()> form)
      : Node(node.sequence_nr(), std::move(edges)), form_(std::move(form)) {
    add_input_metadata(start);
  }

  autograd::variable_list apply(autograd::variable_list&&) override {
    return std::exchange(form_, nullptr)();  // releases what it captured
  }

 private:
  std::function<std::vector<at::Tensor>()> form_;
};

}  // namespace

struct WeightGradients::Parts {
  autograd::edge_list roots;
  autograd::variable_list starts;  // one element each: the engine needs an initial gradient on the right device
};

WeightGradients::WeightGradients() : parts_(std::make_unique<Parts>()) {}
WeightGradients::~WeightGradients() = default;

WeightGradients::Scope::Scope(c10::intrusive_ptr<WeightGradients> gradients)
    : gradients_(gradients), outer_(std::exchange(current_gradients, std::move(gradients))) {}
WeightGradients::Scope::Scope(c10::intrusive_ptr<WeightGradients> gradients, bool defer) : Scope(std::move(gradients)) {
  const std::lock_guard lock(gradients_->mutex_);
  was_deferring_ = std::exchange(gradients_->deferring_, defer);
}
WeightGradients::Scope::~Scope() {
  current_gradients = std::move(outer_);
  if (!was_deferring_) return;
  const std::lock_guard lock(gradients_->mutex_);
  gradients_->deferring_ = *was_deferring_;
}

const c10::intrusive_ptr<WeightGradients>& WeightGradients::current() { return current_gradients; }

bool WeightGradients::deferring() const {
  const std::lock_guard lock(mutex_);
  return deferring_;
}

bool WeightGradients::empty() const {
  const std::lock_guard lock(mutex_);
  return parts_->roots.empty();
}

void WeightGradients::leave(std::size_t first, std::size_t count, const at::Tensor& like,
                            std::function<std::vector<at::Tensor>()> form) {
  const std::shared_ptr<autograd::Node> node = autograd::get_current_node();
  TESSERA_CHECK(node != nullptr, "no backward function is running");
  autograd::edge_list edges;
  for (std::size_t i = first; i < first + count; ++i) edges.push_back(node->next_edge(i));
  const at::Tensor start = at::zeros({1}, like.options());
  auto part =
      std::shared_ptr<LatePart>(new LatePart(*node, std::move(edges), start, std::move(form)), autograd::deleteNode);
  const std::lock_guard lock(mutex_);
  parts_->roots.emplace_back(std::move(part), 0);
  parts_->starts.push_back(start);
}

void WeightGradients::compute() {
  Parts parts;
  {
    const std::lock_guard lock(mutex_);
    std::swap(parts, *parts_);
  }
  if (parts.roots.empty()) return;
  autograd::Engine::get_default_engine().execute(parts.roots, parts.starts, /*keep_graph=*/false,
                                                 /*create_graph=*/false,
                                                 /*accumulate_grad=*/true);
}

namespace {

/// The node of form_late().
class LateGradients final : public autograd::Node {
 public:
  LateGradients(std::uint64_t place, autograd::edge_list edges) : Node(place, std::move(edges)) {
    for (const autograd::Edge& edge : next_edges())
      input_metadata_.push_back(edge.is_valid() ? edge.function->input_metadata(edge.input_nr)
                                                : autograd::InputMetadata());
  }

  std::string name() const override { return "tessera::LateGradients"; }
  void leave(std::function<std::vector<at::Tensor>()> form) { form_ = std::move(form); }

  /// `gradients`: from a backward that deferred nothing (its second part ran elsewhere); usually undefined.
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    autograd::variable_list formed;
    if (form_) formed = std::exchange(form_, nullptr)();  // releases what it captured
    formed.resize(num_outputs());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) formed[i] = formed[i].defined() ? formed[i] + gradients[i] : gradients[i];
    return formed;
  }

 private:
  std::function<std::vector<at::Tensor>()> form_;
};

}  // namespace

void form_late(const at::Tensor& y, std::uint64_t place) {
  const std::shared_ptr<autograd::Node>& node = y.grad_fn();
  if (!node) return;
  autograd::edge_list edges;
  bool any = false;
  for (std::size_t i = 1; i < node->num_outputs() && i <= 2; ++i) {
    edges.push_back(node->next_edge(i));
    any |= edges.back().is_valid();
  }
  if (!any) return;
  const std::shared_ptr<LateGradients> late(new LateGradients(place, std::move(edges)), autograd::deleteNode);
  for (std::size_t i = 0; i < late->num_outputs(); ++i)
    if (late->next_edge(i).is_valid()) node->set_next_edge(i + 1, {late, static_cast<std::uint32_t>(i)});
}

bool leave_late(std::function<std::vector<at::Tensor>()> form) {
  const std::shared_ptr<autograd::Node> node = autograd::get_current_node();
  TESSERA_CHECK(node != nullptr, "no backward function is running");
  for (std::size_t i = 1; i < node->num_outputs() && i <= 2; ++i)
    if (auto* late = dynamic_cast<LateGradients*>(node->next_edge(i).function.get())) {
      late->leave(std::move(form));
      return true;
    }
  return false;
}

}  // namespace tessera::nn
