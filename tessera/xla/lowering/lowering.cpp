#include <tessera/xla/lowering/lowering.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>

#include <set>

namespace tessera::xla {

Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return Element::predicate;
    case at::kInt:
      return Element::int32;
    case at::kLong:
      return Element::int64;
    case at::kHalf:
      return Element::float16;
    case at::kBFloat16:
      return Element::bfloat16;
    case at::kFloat:
      return Element::float32;
    case at::kDouble:
      return Element::float64;
    default:
      throw InputError(concat("device xla: tensors of type ", c10::toString(type), " are not supported"));
  }
}

hlo::Type type_of(const ValueInfo& info) { return {info.sizes, element_of(info.type)}; }

hlo::Value literal_of(hlo::Function& f, const at::Tensor& tensor) {
  const hlo::Type type{tensor.sizes().vec(), element_of(tensor.scalar_type())};
  const at::Tensor dense = tensor.contiguous();
  if (dense.numel() > 0) {
    const at::Tensor first = dense.flatten()[0];
    if (dense.eq(first).all().item<bool>()) return hlo::constant(f, first.item<double>(), type);
  }
  return hlo::literal(f, dense.const_data_ptr(), type);
}

bool NodeLowering::has(std::size_t i) const {
  const Argument& argument = node_.arguments.at(i);
  if (argument.tensors) return !argument.values.empty() && argument.values.front() != no_value;
  return !argument.constant.isNone();
}

const hlo::Value& NodeLowering::tensor(std::size_t i) const {
  const Argument& argument = node_.arguments.at(i);
  TESSERA_CHECK(argument.tensors && argument.values.size() == 1 && argument.values[0] != no_value, node_.op,
                ": argument ", i, " is not a tensor");
  return values_.at(static_cast<std::size_t>(argument.values[0]));
}

std::vector<hlo::Value> NodeLowering::tensors(std::size_t i) const {
  std::vector<hlo::Value> result;
  for (const ValueId id : node_.arguments.at(i).values) {
    TESSERA_CHECK(id != no_value, node_.op, ": an absent tensor in a list");
    result.push_back(values_.at(static_cast<std::size_t>(id)));
  }
  return result;
}

double NodeLowering::number(std::size_t i) const {
  const c10::IValue& value = node_.arguments.at(i).constant;
  if (value.isScalar()) return value.toScalar().toDouble();
  if (value.isBool()) return value.toBool() ? 1 : 0;
  throw Error(concat(node_.op, ": argument ", i, " is not a number"));
}
std::int64_t NodeLowering::integer(std::size_t i) const { return node_.arguments.at(i).constant.toInt(); }
bool NodeLowering::flag(std::size_t i) const { return node_.arguments.at(i).constant.toBool(); }
std::string NodeLowering::string(std::size_t i) const { return node_.arguments.at(i).constant.toStringRef(); }

hlo::Sizes NodeLowering::integers(std::size_t i) const {
  const c10::IValue& value = node_.arguments.at(i).constant;
  if (value.isNone()) return {};
  if (value.isInt()) return {value.toInt()};
  return value.toIntVector();
}

std::int64_t NodeLowering::dimension(std::size_t i, std::size_t rank) const {
  const std::int64_t d = integer(i);
  return d < 0 ? d + static_cast<std::int64_t>(rank) : d;
}

hlo::Value NodeLowering::operand(std::size_t i, const hlo::Type& type) const {
  if (!node_.arguments.at(i).tensors) return hlo::constant(f, number(i), type);
  return hlo::expand(f, hlo::convert(f, tensor(i), type.element), type.sizes);
}

hlo::Type NodeLowering::result_type(std::size_t k) const {
  return type_of(graph_.values.at(static_cast<std::size_t>(node_.results.at(k))));
}

void NodeLowering::set(std::size_t k, const hlo::Value& value) {
  const ValueId id = node_.results.at(k);
  if (id == no_value) return;
  const hlo::Type expected = result_type(k);
  TESSERA_CHECK(value.type == expected, node_.op, ".", node_.overload, ": its rule makes ", hlo::text(value.type),
                ", LibTorch ", hlo::text(expected));
  values_.at(static_cast<std::size_t>(id)) = value;
}

hlo::Type computed_type(hlo::Type type) {
  if (type.element == Element::bfloat16 || type.element == Element::float16) type.element = Element::float32;
  return type;
}

void set_converted(NodeLowering& n, const hlo::Value& value) {
  n.set(0, hlo::convert(n.f, value, n.result_type().element));
}

Rule rule_of(const Node& node) {
  std::string_view name = node.op;
  // An in-place operator is the same operation; its result becomes the written tensor's value.
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  for (const RuleTable* const table : {&elementwise_rules(), &shape_rules(), &product_rules(), &reduction_rules(),
                                       &norm_rules(), &indexing_rules(), &random_rules()})
    if (const auto found = table->find(name); found != table->end()) return found->second;
  return nullptr;
}

void check_rules(const Graph& graph) {
  std::map<std::string, std::set<std::string>> missing;
  for (const Node& node : graph.nodes)
    if (rule_of(node) == nullptr)
      missing[node.overload.empty() ? node.op : node.op + "." + node.overload].insert(
          node.last_parameter < 0 || graph.modules.at(static_cast<std::size_t>(node.last_parameter)).empty()
              ? "the root module"
              : graph.modules[static_cast<std::size_t>(node.last_parameter)]);
  if (missing.empty()) return;
  std::string text;
  for (const auto& [op, modules] : missing) {
    text += concat("\n  ", op, ", in or after ");
    std::size_t shown = 0;
    for (const std::string& module : modules) {
      if (shown == 3) {
        text += concat(" and ", modules.size() - shown, " more");
        break;
      }
      text += concat(shown++ == 0 ? "" : ", ", module);
    }
  }
  throw InputError(concat("device xla: the step uses ", missing.size(),
                          missing.size() == 1 ? " operator" : " operators", " that cannot be compiled:", text));
}

}  // namespace tessera::xla
