#include <tessera/xla/capture/capture.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include <tessera/base/error.h>
#include <tessera/nn/capturing.h>
#include <tessera/nn/dropout.h>
#include <tessera/parallel/recorder/operator_recorder.h>
#include <tessera/parallel/recorder/operator_work.h>
#include <tessera/xla/capture/shapes.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace tessera::xla {
namespace {

using Stack = std::vector<c10::IValue>;

/// Identifies a tensor's elements.
using Geometry = std::tuple<const c10::StorageImpl*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                            at::ScalarType>;

Geometry geometry_of(const at::Tensor& tensor) {
  std::vector<std::int64_t> strides = tensor.strides().vec();
  for (std::size_t d = 0; d < strides.size(); ++d)
    if (tensor.sizes()[d] == 1) strides[d] = 0;  // the stride of a dimension of size 1 is irrelevant
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(), std::move(strides),
          tensor.scalar_type()};
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}
bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  return false;
}
std::string full_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

/// The argument's tensors, including absent ones; nullopt if it is neither a tensor nor a list of tensors.
std::optional<std::vector<at::Tensor>> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return std::vector{value.toTensor()};
  if (!value.isList()) return std::nullopt;
  std::vector<at::Tensor> tensors;
  bool any = value.isTensorList() || value.isOptionalTensorList();
  for (const c10::IValue& item : value.toListRef()) {
    any = any || item.isTensor();
    tensors.push_back(item.isTensor() ? item.toTensor() : at::Tensor());
  }
  return any ? std::optional(std::move(tensors)) : std::nullopt;
}

class Capture final : public parallel::OperatorHandler, public nn::CapturedDraws {
 public:
  explicit Capture(const std::vector<NamedParameter>& parameters) {
    for (const NamedParameter& parameter : parameters) {
      const ValueId id = add_value(parameter.tensor);
      graph_.parameters.push_back(id);
      bind(parameter.tensor, id);
      const std::size_t dot = parameter.name.rfind('.');
      graph_.modules.push_back(dot == std::string::npos ? "" : parameter.name.substr(0, dot));
      given_.insert(parameter.tensor.storage().unsafeGetStorageImpl());
    }
  }

  at::Tensor make_input(const ValueInfo& info) {
    at::Tensor tensor = without_memory(at::empty(info.sizes, at::TensorOptions(at::kMeta).dtype(info.type)));
    const ValueId id = add_value(tensor);
    graph_.inputs.push_back(id);
    bind(tensor, id);
    given_.insert(tensor.storage().unsafeGetStorageImpl());
    return tensor;
  }

  Graph finish(const std::vector<at::Tensor>& outputs) {
    for (const at::Tensor& output : outputs) graph_.outputs.push_back(read(output, "the step's result"));
    return std::move(graph_);
  }

  at::Tensor kept(const nn::RandomPlace& place, at::IntArrayRef lines, std::int64_t columns, double p) override {
    const Draw& draw = draw_at(place, lines);
    Node node{.op = "kept",
              .overload = "",
              .arguments = {},
              .results = {},
              .backward = in_backward(),
              .last_parameter = last_parameter_};
    for (const ValueId id : {draw.low, draw.high})
      node.arguments.push_back({.tensors = true, .values = {id}, .constant = {}});
    for (const std::int64_t number : {place.column, static_cast<std::int64_t>(std::llround(p * 4294967295.0))})
      node.arguments.push_back({.tensors = false, .values = {}, .constant = number});
    std::vector<std::int64_t> sizes = lines.vec();
    sizes.push_back(columns);
    at::Tensor result = without_memory(at::empty(sizes, at::TensorOptions(at::kMeta).dtype(at::kFloat)));
    add_result(node, result);
    graph_.nodes.push_back(std::move(node));
    return result;
  }

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below, Stack* stack) override {
    if (parallel::is_composite(op, below)) return op.redispatchBoxed(below, stack);
    const c10::FunctionSchema& schema = op.schema();
    const std::size_t count = schema.arguments().size();
    const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    if (op.hasTag(at::Tag::nondeterministic_seeded))
      refuse(
          op,
          "draws random numbers, which a compiled step would repeat in every step; use nn::dropout(), which draws by "
          "place");
    if (std::ranges::none_of(parallel::tensors_among(arguments), [&](const at::Tensor& t) { return is_captured(t); }))
      return run_now(op, below, stack);
    if (is_equal_to_itself(op, arguments)) {
      stack->resize(stack->size() - count);
      stack->emplace_back(true);
      return;
    }
    if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape))
      refuse(op, "makes the step's control flow depend on data");
    bool writes = false;
    for (const c10::Argument& argument : schema.arguments()) writes = writes || is_written(argument);
    if (writes) return write_in_place(op, arguments, stack);
    if (is_view(schema)) return make_view(op, below, arguments, stack);
    compute(op, arguments, stack);
  }

 private:
  // ---- values ----
  ValueId add_value(const at::Tensor& tensor) {
    graph_.values.push_back({tensor.sizes().vec(), tensor.scalar_type()});
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }
  bool is_captured(const at::Tensor& tensor) const {
    return tensor.defined() && tensor.has_storage() && captured_.contains(tensor.storage().unsafeGetStorageImpl());
  }
  /// Assigns the value `id` to `tensor`.
  void bind(const at::Tensor& tensor, ValueId id) {
    captured_.emplace(tensor.storage().unsafeGetStorageImpl(), tensor.storage());
    values_[geometry_of(tensor)] = id;
  }
  /// The current value of `tensor`: a captured one, or a constant.
  ValueId read(const at::Tensor& tensor, const std::string& reader) {
    if (!tensor.defined()) return no_value;
    if (is_captured(tensor)) {
      const auto found = values_.find(geometry_of(tensor));
      if (found == values_.end())
        throw InputError(concat("the step cannot be captured", where(), ": ", reader,
                                " reads memory that was written in place through another view"));
      // Parameters have the lowest ids.
      const auto parameters = static_cast<ValueId>(graph_.parameters.size());
      if (found->second < parameters && !in_backward()) last_parameter_ = found->second;
      return found->second;
    }
    const Geometry geometry = geometry_of(tensor);
    const auto version = std::pair(geometry, tensor._version());
    if (const auto found = constants_.find(version); found != constants_.end()) return found->second;
    const ValueId id = add_value(tensor);
    graph_.constants.emplace_back(id, copy_of(tensor));
    alive_.push_back(tensor.storage());
    constants_.emplace(version, id);
    return id;
  }
  static at::Tensor copy_of(const at::Tensor& tensor) {
    const at::AutoDispatchBelowADInplaceOrView plain;
    return tensor.detach().clone(at::MemoryFormat::Contiguous);
  }

  /// Two draws at the same place are the same draw: backward recomputes the mask.
  const Draw& draw_at(const nn::RandomPlace& place, at::IntArrayRef lines) {
    Draw draw;
    if (place.numbers) draw.numbers = *place.numbers;
    draw.row = place.row;
    draw.token = place.token;
    draw.head = place.head;
    if (place.tokens) draw.positions = *place.tokens;
    draw.lines = lines.vec();
    for (const Draw& other : graph_.draws)
      if (std::tie(other.numbers, other.row, other.token, other.head, other.positions, other.lines) ==
          std::tie(draw.numbers, draw.row, draw.token, draw.head, draw.positions, draw.lines))
        return other;
    for (ValueId* const id : {&draw.low, &draw.high}) {
      graph_.values.push_back({draw.lines, at::kInt});
      *id = static_cast<ValueId>(graph_.values.size()) - 1;
    }
    return graph_.draws.emplace_back(std::move(draw));
  }

  // ---- operators ----
  static bool in_backward() { return torch::autograd::get_current_node() != nullptr; }
  std::string where() const {
    if (last_parameter_ < 0) return "";
    const std::string& module = graph_.modules[static_cast<std::size_t>(last_parameter_)];
    return concat(" (in or after ", module.empty() ? "the root module" : module, ")");
  }
  [[noreturn]] void refuse(const c10::OperatorHandle& op, std::string_view why) const {
    throw InputError(concat("the step cannot be captured", where(), ": ", full_name(op), " ", why));
  }

  /// at::equal(x, x), with which torch::nn::MultiheadAttention checks for self-attention.
  bool is_equal_to_itself(const c10::OperatorHandle& op, const Stack& arguments) {
    if (op.operator_name().name != "aten::equal") return false;
    const at::Tensor &a = arguments[0].toTensor(), &b = arguments[1].toTensor();
    return is_captured(a) && is_captured(b) && read(a, full_name(op)) == read(b, full_name(op));
  }

  Node node_of(const c10::OperatorHandle& op, const Stack& arguments) {
    Node node;
    const std::string& name = op.operator_name().name;
    const std::size_t colons = name.find("::");
    node.op = name.starts_with("aten::") ? name.substr(colons + 2) : name;
    node.overload = op.operator_name().overload_name;
    node.backward = in_backward();
    for (const c10::IValue& given : arguments) {
      const auto tensors = tensors_of(given);
      Argument argument{.tensors = tensors.has_value(), .values = {}, .constant = {}};
      if (tensors)
        for (const at::Tensor& t : *tensors) argument.values.push_back(read(t, full_name(op)));
      else
        argument.constant = given;
      node.arguments.push_back(std::move(argument));
    }
    node.last_parameter = last_parameter_;
    return node;
  }
  void add_result(Node& node, const at::Tensor& result) {
    if (!result.defined()) return node.results.push_back(no_value);
    node.results.push_back(add_value(result));
    bind(result, node.results.back());
  }

  static std::vector<at::Tensor> results_on(const Stack& stack, const c10::OperatorHandle& op) {
    return parallel::tensors_among(std::span(stack).last(op.schema().returns().size()));
  }
  /// Runs an operator that depends on nothing captured.
  void run_now(const c10::OperatorHandle& op, c10::DispatchKeySet below, Stack* stack) {
    parallel::run_unseen(op, below, stack);
    for (const at::Tensor& t : results_on(*stack, op))
      if (t.has_storage() && made_.insert(t.storage().unsafeGetStorageImpl()).second) alive_.push_back(t.storage());
  }

  void make_view(const c10::OperatorHandle& op, c10::DispatchKeySet below, const Stack& arguments, Stack* stack) {
    Node node = node_of(op, arguments);
    parallel::run_unseen(op, below, stack);
    for (const at::Tensor& t : results_on(*stack, op)) add_result(node, t);
    graph_.nodes.push_back(std::move(node));
  }

  void compute(const c10::OperatorHandle& op, const Stack& arguments, Stack* stack) {
    Node node = node_of(op, arguments);
    Stack results = shapes_of(op, arguments);
    stack->resize(stack->size() - arguments.size());
    for (c10::IValue& result : results) {
      if (result.isTensor()) {
        if (result.toTensor().defined()) result = without_memory(result.toTensor());
        add_result(node, result.toTensor());
      } else if (result.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const c10::IValue& item : result.toListRef()) {
          list.push_back(without_memory(item.toTensor()));
          add_result(node, list.get(list.size() - 1));
        }
        result = list;
      }
      stack->push_back(result);
    }
    graph_.nodes.push_back(std::move(node));
  }

  void write_in_place(const c10::OperatorHandle& op, const Stack& arguments, Stack* stack) {
    const c10::FunctionSchema& schema = op.schema();
    const at::Tensor* written = nullptr;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!is_written(schema.arguments()[i])) continue;
      if (written != nullptr || !arguments[i].isTensor() || schema.returns().size() != 1)
        refuse(op, "writes several tensors in place");
      written = &arguments[i].toTensor();
    }
    const c10::StorageImpl* const storage = written->storage().unsafeGetStorageImpl();
    if (given_.contains(storage) || (!is_captured(*written) && !made_.contains(storage)))
      refuse(op, "changes in place a parameter, an input or a buffer that existed before the step");
    Node node = node_of(op, arguments);
    std::erase_if(values_, [storage](const auto& entry) { return std::get<0>(entry.first) == storage; });
    add_result(node, *written);
    const at::Tensor result = *written;
    stack->resize(stack->size() - arguments.size());
    stack->emplace_back(result);
    graph_.nodes.push_back(std::move(node));
  }

  Graph graph_;
  std::map<Geometry, ValueId> values_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> captured_;  // kept alive so that no address is reused
  std::unordered_set<const c10::StorageImpl*> given_, made_;            // given: allocated before the step;
                                                                        // made: allocated by operators that ran
  std::map<std::pair<Geometry, std::uint32_t>, ValueId> constants_;
  std::vector<c10::Storage> alive_;
  std::int32_t last_parameter_ = -1;
};

/// During its lifetime, the calling thread captures, and attention is decomposed into products and a softmax.
class CapturingScope {
 public:
  explicit CapturingScope(nn::CapturedDraws& draws)
      : before_(nn::captured_draws), flash_(at::globalContext().userEnabledFlashSDP()) {
    nn::captured_draws = &draws;
    at::globalContext().setSDPUseFlash(false);
  }
  ~CapturingScope() {
    nn::captured_draws = before_;
    at::globalContext().setSDPUseFlash(flash_);
  }
  CapturingScope(const CapturingScope&) = delete;
  CapturingScope& operator=(const CapturingScope&) = delete;

 private:
  nn::CapturedDraws* before_;
  bool flash_;
};

}  // namespace

Graph capture(const std::vector<NamedParameter>& parameters, const std::vector<ValueInfo>& inputs, const Body& body) {
  Capture handler(parameters);
  std::vector<at::Tensor> given;
  for (const ValueInfo& info : inputs) given.push_back(handler.make_input(info));
  std::vector<at::Tensor> outputs;
  {
    const CapturingScope capturing(handler);
    const parallel::ListenToOperators listening(handler);
    outputs = body(given);
  }
  return handler.finish(outputs);
}

}  // namespace tessera::xla
