#pragma once
/// \file
/// xla/lowering/: translates captured operators into StableHLO, with one rule per LibTorch operator, in files by kind.

#include <tessera/xla/capture/graph.h>
#include <tessera/xla/hlo/operations.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::xla {

/// LibTorch's type as XLA's. Throws InputError for unsupported types.
Element element_of(at::ScalarType type);
hlo::Type type_of(const ValueInfo& info);
/// A tensor's elements as a literal, or as one constant if all are equal.
hlo::Value literal_of(hlo::Function& f, const at::Tensor& tensor);

/// A node during lowering: its arguments, indexed as in the operator's schema, and its results.
class NodeLowering {
 public:
  NodeLowering(hlo::Function& function, const Graph& graph, const Node& node, std::vector<hlo::Value>& values)
      : f(function), graph_(graph), node_(node), values_(values) {}

  hlo::Function& f;

  const Node& node() const { return node_; }
  /// True if argument i is present.
  bool has(std::size_t i) const;
  /// Argument i, a tensor.
  const hlo::Value& tensor(std::size_t i) const;
  std::vector<hlo::Value> tensors(std::size_t i) const;  ///< argument i, a list of tensors
  double number(std::size_t i) const;                    ///< argument i, a Scalar, float, int or bool
  std::int64_t integer(std::size_t i) const;
  hlo::Sizes integers(std::size_t i) const;  ///< argument i, a list; empty for None
  bool flag(std::size_t i) const;
  std::string string(std::size_t i) const;
  /// Argument i, a dimension of a tensor with `rank` dimensions, as a non-negative index.
  std::int64_t dimension(std::size_t i, std::size_t rank) const;
  /// Argument i, a tensor or a number, converted to the sizes and element type of `type`.
  hlo::Value operand(std::size_t i, const hlo::Type& type) const;

  hlo::Type result_type(std::size_t k = 0) const;
  bool wants(std::size_t k) const { return node_.results.at(k) != no_value; }
  /// Sets result k. Throws Error if sizes or type differ from the captured ones, which means that the rule is wrong.
  void set(std::size_t k, const hlo::Value& value);

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<hlo::Value>& values_;
};

/// Replaces half types by fp32, in which LibTorch's kernels compute them.
hlo::Type computed_type(hlo::Type type);
/// Sets result 0 to `value`, converted to the captured type.
void set_converted(NodeLowering& n, const hlo::Value& value);

using Rule = void (*)(NodeLowering&);
using RuleTable = std::map<std::string_view, Rule>;

// Rules by kind; keys are operator names without overload, and without the "_" of in-place operators.
const RuleTable& elementwise_rules();
const RuleTable& shape_rules();
const RuleTable& product_rules();
const RuleTable& reduction_rules();
const RuleTable& norm_rules();
const RuleTable& indexing_rules();
const RuleTable& random_rules();

/// The rule of a node; null if it has none.
Rule rule_of(const Node& node);
/// Throws InputError listing every operator of the graph without a rule, and the modules that use it.
void check_rules(const Graph& graph);

}  // namespace tessera::xla
