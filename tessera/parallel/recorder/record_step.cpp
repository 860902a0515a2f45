#include <tessera/parallel/recorder/record_step.h>

#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/nn/product_watch.h>
#include <tessera/parallel/dispatch/module_units.h>
#include <tessera/parallel/recorder/operator_recorder.h>
#include <tessera/parallel/recorder/operator_work.h>
#include <tessera/parallel/recorder/saved_counter.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera {
namespace parallel {
namespace {

using plan::RecordedCall;
using plan::RecordedLayer;
using plan::RecordedStep;
using plan::RecordedWork;

constexpr std::size_t root_unit = 0;

/// The repeated modules: at least two modules of the same parent and class, with the most parameters in
/// total.
layout::WrapPolicy layers_of(const layout::ModuleTree& tree) {
  std::vector<std::int64_t> numel(tree.modules.size(), 0);
  for (std::size_t i = tree.modules.size(); i-- > 0;) {  // children come after their parents
    for (const std::size_t p : tree.modules[i].parameters) numel[i] += tree.parameters[p].numel();
    if (i > 0) numel[tree.modules[i].parent] += numel[i];
  }
  std::map<std::pair<std::size_t, std::string>, std::vector<std::size_t>> groups;
  for (std::size_t i = 1; i < tree.modules.size(); ++i)
    if (numel[i] > 0) groups[{tree.modules[i].parent, tree.modules[i].type}].push_back(i);
  layout::WrapPolicy policy{.kind = layout::WrapPolicy::Kind::by_name};
  std::int64_t most = 0;
  for (const auto& [key, members] : groups) {
    std::int64_t sum = 0;
    for (const std::size_t i : members) sum += numel[i];
    if (members.size() < 2 || sum <= most) continue;
    most = sum;
    policy.names.clear();
    for (const std::size_t i : members) policy.names.push_back(tree.modules[i].name);
  }
  if (policy.names.empty())
    for (std::size_t i = 1; i < tree.modules.size(); ++i)
      if (tree.modules[i].parent == 0 && numel[i] > 0) policy.names.push_back(tree.modules[i].name);
  if (policy.names.empty()) policy.kind = layout::WrapPolicy::Kind::none;
  return policy;
}

/// Consecutive operators of forward that belong to one unit.
struct Segment {
  std::size_t unit = root_unit;
  std::uint64_t first_sequence = 0;  ///< lowest sequence number of the autograd nodes created in the segment
  double input_bytes = 0, saved_bytes = 0;
};

class StepRecorder final : public OperatorListener, public nn::ProductWatcher {
 public:
  StepRecorder(const ModuleParameters& module, std::vector<layout::Unit> units)
      : units_(std::move(units)), saved_(std::make_shared<SavedCounter>([this](std::int64_t bytes) {
          const std::lock_guard lock(mutex_);
          if (!backward_seen_) segments_.back().saved_bytes += static_cast<double>(bytes);
        })) {
    for (std::size_t u = 0; u < units_.size(); ++u)
      for (const std::size_t p : units_[u].parameters) {
        const at::Tensor& tensor = module.parameters[p].tensor;
        parameters_.push_back(tensor);
        unit_of_parameter_.push_back(u);
        if (tensor.has_storage()) parameter_of_[tensor.storage().unsafeGetStorageImpl()] = parameters_.size() - 1;
      }
    uses_.resize(parameters_.size());
    segments_.push_back({root_unit, at::sequence_number::peek(), 0, 0});
  }

  const std::shared_ptr<SavedCounter>& saved() const { return saved_; }
  void start(MadeBytes& made) {
    made_ = &made;
    gradients_before_ = gradients();
  }

  void before(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) override {
    const std::lock_guard lock(mutex_);
    if (in_backward()) return;
    // Output arguments (mm.out) come after the inputs.
    const auto& formal = op.schema().arguments();
    std::size_t inputs = std::min(formal.size(), arguments.size());
    while (inputs > 0 && formal[inputs - 1].is_out()) --inputs;
    const std::vector<at::Tensor> tensors = tensors_among(arguments.first(inputs));
    double input = 0;
    for (const at::Tensor& tensor : tensors)
      if (parameter_index(tensor) < 0) input = std::max(input, bytes_of(tensor));
    const bool differentiated = std::ranges::any_of(tensors, [](const at::Tensor& t) { return t.requires_grad(); });
    for (const at::Tensor& tensor : tensors) meets(parameter_index(tensor), input, differentiated);
  }

  void after(const SeenOperator& seen) override {
    const std::lock_guard lock(mutex_);
    RecordedCall call;
    call.name = seen.op.schema().name();
    const RecordedWork work = work_of(seen);
    const std::vector<at::Tensor> any = tensors_among(seen.arguments), made = tensors_among(seen.results);
    for (const at::Tensor& tensor : any) call.sizes.push_back(tensor.sizes().vec());
    if (!any.empty() || !made.empty())
      call.type = std::string(c10::toString((any.empty() ? made : any)[0].scalar_type()));
    note(std::move(call), work, any.empty() ? 4 : static_cast<double>(any[0].element_size()));
  }

  void product(std::int64_t m, std::int64_t n, std::int64_t k, double element, const at::Tensor* a,
               const at::Tensor* b) override {
    if (m == 0 || n == 0 || k == 0 || !listening_here())
      return;  // the product is empty, of another thread, or inside an operator that counts it
    const std::lock_guard lock(mutex_);
    if (!in_backward())
      for (const auto& [factor, other] : {std::pair{a, b}, {b, a}})
        if (factor != nullptr) meets(parameter_index(*factor), other == nullptr ? 0 : bytes_of(*other), true);
    RecordedWork work;
    work.flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    work.add(plan::RecordedProduct{static_cast<double>(m), static_cast<double>(n), static_cast<double>(k)});
    note({.name = "tessera::multiply", .type = "Float", .sizes = {{m, k}, {k, n}}}, work, element);
  }

  void attention(const at::Tensor& q, const at::Tensor& k, bool causal, double seen, bool backward) override {
    if (!listening_here()) return;
    const std::lock_guard lock(mutex_);
    RecordedWork work;
    add_attention(work, q, k, causal, seen, backward);
    note({.name = backward ? "tessera::attention_backward" : "tessera::attention",
          .type = "Float",
          .sizes = {q.sizes().vec(), k.sizes().vec()}},
         work, static_cast<double>(q.element_size()));
  }

  RecordedStep end(const std::string& name, const RecordOptions& options);

 private:
  struct Noted {
    RecordedCall call;
    RecordedWork work;
    std::size_t segment = 0;
  };

  static double bytes_of(const at::Tensor& tensor) {
    return static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
  }
  std::ptrdiff_t parameter_index(const at::Tensor& tensor) const {
    if (!tensor.has_storage()) return -1;
    const auto found = parameter_of_.find(tensor.storage().unsafeGetStorageImpl());
    return found == parameter_of_.end() ? -1 : static_cast<std::ptrdiff_t>(found->second);
  }

  /// Whether the calling thread runs a node of autograd.
  bool in_backward() {
    const bool in = torch::autograd::get_current_node() != nullptr;
    backward_seen_ = backward_seen_ || in;
    return in;
  }

  /// Called when forward uses a parameter, which may start another unit. `differentiated`: autograd has already created
  /// the node of the current operator. (This also holds for everything that runs without grad mode, inside a function
  /// with its own backward.)
  void meets(std::ptrdiff_t parameter, double input, bool differentiated) {
    if (parameter < 0) return;
    if (backward_seen_) {
      if (at::GradMode::is_enabled())
        throw InputError(concat("record_step: ", units_[unit_of_parameter_[static_cast<std::size_t>(parameter)]].name,
                                " is used again after backward(); body runs one forward and one backward of one "
                                "micro-batch"));
      return;  // an optimizer's use
    }
    const auto p = static_cast<std::size_t>(parameter);
    if (unit_of_parameter_[p] != segments_.back().unit) {
      const std::uint64_t next = at::sequence_number::peek();
      const bool made = next > 0 && (differentiated || !at::GradMode::is_enabled());
      segments_.push_back(
          {unit_of_parameter_[p], std::max(segments_.back().first_sequence, made ? next - 1 : next), input, 0});
    }
    if (uses_[p].empty() || uses_[p].back() != segments_.size() - 1) uses_[p].push_back(segments_.size() - 1);
  }

  /// The forward segment of the node that is running.
  std::size_t segment_of_node() const {
    const auto node = torch::autograd::get_current_node();
    const std::uint64_t sequence = node->sequence_nr();
    if (sequence == std::numeric_limits<std::uint64_t>::max()) return last_segment_;  // accumulates into grad()
    const auto past =
        std::upper_bound(segments_.begin(), segments_.end(), sequence,
                         [](std::uint64_t s, const Segment& segment) { return s < segment.first_sequence; });
    return past == segments_.begin() ? 0 : static_cast<std::size_t>(past - segments_.begin()) - 1;
  }

  /// Bytes of the parameters' gradients.
  double gradients() const {
    double bytes = 0;
    for (const at::Tensor& parameter : parameters_)
      if (parameter.grad().defined()) bytes += bytes_of(parameter.grad());
    return bytes;
  }

  void note(RecordedCall call, const RecordedWork& work, double element) {
    const bool backward = in_backward();
    if (!backward && backward_seen_) return;  // body's work after its step, such as an optimizer's
    Noted noted{std::move(call), work, backward ? segment_of_node() : segments_.size() - 1};
    last_segment_ = noted.segment;
    noted.call.backward = backward;
    noted.call.flop = work.flop;
    noted.call.bytes = work.pass_bytes;
    if (work.flop > 0) flop_by_element_[element] += work.flop;
    all_.push_back(std::move(noted));
    // Gradients created in this step are newly allocated memory but are counted as gradients elsewhere.
    const double gained = backward ? std::max(0.0, gradients() - gradients_before_) : 0;
    moment_ = std::max(moment_, static_cast<double>(made_->take_peak() - saved_->now()) - gained);
  }

  std::vector<layout::Unit> units_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::size_t> unit_of_parameter_;
  std::unordered_map<const c10::StorageImpl*, std::size_t> parameter_of_;
  std::vector<std::vector<std::size_t>> uses_;  ///< by parameter: the segments that use it
  std::vector<Segment> segments_;
  std::vector<Noted> all_;
  std::map<double, double> flop_by_element_;
  std::shared_ptr<SavedCounter> saved_;
  MadeBytes* made_ = nullptr;
  std::mutex mutex_;  // guards all members: backward may run on several threads
  double moment_ = 0, gradients_before_ = 0;
  std::size_t last_segment_ = 0;
  bool backward_seen_ = false;
};

RecordedStep StepRecorder::end(const std::string& name, const RecordOptions& options) {
  if (!backward_seen_)
    throw InputError(concat("record_step: body did not call backward() on a loss that depends on parameters of ", name,
                            "; a step is one forward and one backward"));
  RecordedStep step;
  step.name = name;
  step.rows = options.rows;
  step.row_tokens = options.row_tokens;
  step.moment_bytes = std::max(0.0, moment_);

  // Layers in the order in which forward reaches them. Operators outside of all layers belong to the chain's begin if
  // they come before the first layer, to its end if they come after the last one, and otherwise to the preceding layer.
  std::vector<std::size_t> layer_of_unit(units_.size(), 0), unit_of_layer;
  std::size_t last_block = 0;
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    const std::size_t unit = segments_[s].unit;
    if (units_[unit].module == 0) continue;
    last_block = s;
    if (layer_of_unit[unit] != 0) continue;
    unit_of_layer.push_back(unit);
    layer_of_unit[unit] = unit_of_layer.size();
  }
  if (unit_of_layer.empty())
    throw InputError(concat("record_step: body uses none of the ", units_.size() - 1, " layers of ", name));
  const std::size_t end_layer = unit_of_layer.size() + 1;
  std::vector<std::size_t> layer_of(segments_.size(), 0);
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    const bool block = units_[segments_[s].unit].module != 0;
    layer_of[s] = block ? layer_of_unit[segments_[s].unit] : s > last_block ? end_layer : s == 0 ? 0 : layer_of[s - 1];
  }

  std::vector<RecordedLayer> layers(end_layer + 1);
  layers.front().name = "begin";
  layers.back().name = "end";
  for (std::size_t i = 0; i < unit_of_layer.size(); ++i) layers[i + 1].name = units_[unit_of_layer[i]].name;
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    RecordedLayer& layer = layers[layer_of[s]];
    if (layer.input_bytes == 0) layer.input_bytes = segments_[s].input_bytes;
    layer.saved_bytes += segments_[s].saved_bytes;
  }
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto numel = static_cast<double>(parameters_[p].numel());
    const std::size_t layer = !uses_[p].empty()                           ? layer_of[uses_[p].front()]
                              : layer_of_unit[unit_of_parameter_[p]] != 0 ? layer_of_unit[unit_of_parameter_[p]]
                                                                          : 0;
    layers[layer].parameters += numel;
    if (parameters_[p].requires_grad()) layers[layer].trained += numel;
    if (layer == 0 && !uses_[p].empty() && layer_of[uses_[p].back()] == end_layer) step.shared += numel;
  }
  for (Noted& noted : all_) {
    noted.call.layer = static_cast<std::int64_t>(layer_of[noted.segment]);
    RecordedLayer& layer = layers[layer_of[noted.segment]];
    RecordedWork& sum = noted.call.backward ? layer.backward : layer.forward;
    sum.flop += noted.work.flop;
    sum.pass_bytes += noted.work.pass_bytes;
    sum.passes += noted.work.passes;
    for (const plan::RecordedProduct& product : noted.work.products) sum.add(product);
    for (const plan::RecordedAttention& attention : noted.work.attention) sum.add(attention);
    step.calls.push_back(std::move(noted.call));
  }
  double most = 0;
  for (const auto& [element, flop] : flop_by_element_)
    if (flop > most) most = flop, step.product_bytes = element;
  step.begin = std::move(layers.front());
  step.end = std::move(layers.back());
  step.layers.assign(std::make_move_iterator(layers.begin() + 1), std::make_move_iterator(layers.end() - 1));
  return step;
}

/// While an object of this class lives, nn/ reports each of its products to `watcher`.
class WatchProducts {
 public:
  explicit WatchProducts(nn::ProductWatcher& watcher) {
    nn::product_watcher.store(&watcher, std::memory_order_release);
  }
  ~WatchProducts() { nn::product_watcher.store(nullptr, std::memory_order_release); }
  WatchProducts(const WatchProducts&) = delete;
  WatchProducts& operator=(const WatchProducts&) = delete;
};

}  // namespace
}  // namespace parallel

plan::RecordedStep record_step(const torch::nn::Module& module, const RecordOptions& options,
                               const std::function<void()>& body) {
  if (options.rows < 1 || options.row_tokens < 1)
    throw InputError(
        concat("record_step: rows ", options.rows, ", row_tokens ", options.row_tokens, "; both must be at least 1"));
  const parallel::ModuleParameters parameters = parallel::parameters_of(module);
  if (parameters.parameters.empty()) throw InputError(concat("record_step: ", module.name(), " has no parameters"));
  const bool chosen = options.layers.kind != layout::WrapPolicy::Kind::none;
  parallel::StepRecorder recorder(
      parameters, layout::make_units(parameters.tree, chosen ? options.layers : parallel::layers_of(parameters.tree)));
  {
    const parallel::ListenToOperators listening(recorder);
    const parallel::WatchProducts products(recorder);
    const parallel::SavedTensors saved(recorder.saved());
    parallel::MadeBytes made;
    recorder.start(made);
    body();
  }
  return recorder.end(std::string(layout::short_class_name(module.name())), options);
}

plan::RecordedStep record_step(const torch::nn::Module& module, const std::function<void()>& body) {
  return record_step(module, RecordOptions{}, body);
}

void write_recorded(const plan::RecordedStep& step, const std::string& path) {
  write_file_atomically(path, dump_json(plan::recorded_value(step), 1, 12) + "\n");
}

}  // namespace tessera
