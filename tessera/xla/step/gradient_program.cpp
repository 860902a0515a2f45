#include <tessera/xla/step/gradient_program.h>

#include <tessera/base/error.h>
#include <tessera/xla/lowering/lowering.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

namespace tessera::xla {
namespace {

using hlo::Value;

/// Constants of at most this many elements are embedded in the program.
constexpr std::int64_t most_literal_elements = 256;

constexpr std::size_t no_unit = static_cast<std::size_t>(-1);

class GradientBuilder {
 public:
  GradientBuilder(const Graph& graph, const std::vector<FlatUnit>& units, const GradientOptions& options)
      : graph_(graph), units_(units), options_(options), values_(graph.values.size()) {
    unit_of_.assign(graph.parameters.size(), no_unit);
    for (std::size_t u = 0; u < units.size(); ++u)
      for (const std::size_t p : units[u].parameters) unit_of_[p] = u;
    find_segments();
    find_derived();
  }

  GradientProgram build() {
    add_arguments();
    add_constants();
    add_draws();
    if (!options_.forward_only) count_gradients();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.backward && options_.recompute) recompute_what_is_read(node);
      gather_what_is_read(node, node.backward);
      lower(node, values_);
      for (const ValueId id : node.results)
        if (id != no_value) latest_ = id;
      if (options_.global && !node.backward) annotate_outputs(node);
      reduce_what_is_complete(node);
    }
    add_results();
    result_.text = f_.module(options_.global ? hlo::Ranks{.partitions = options_.devices}
                                             : hlo::Ranks{.replicas = options_.devices});
    return std::move(result_);
  }

 private:
  Value& value(ValueId id) { return values_[static_cast<std::size_t>(id)]; }
  bool is_parameter(ValueId id) const { return id >= 0 && id < static_cast<ValueId>(graph_.parameters.size()); }

  template <class F>
  static void each_read(const Node& node, const F& f) {
    for (const Argument& argument : node.arguments)
      for (const ValueId id : argument.values)
        if (id != no_value) f(id);
  }

  // ---- arguments and constants ----
  void add_arguments() {
    const auto type = [&](const FlatUnit& unit) -> hlo::Type {
      if (options_.global) return {unit.sizes, Element::float32};
      return {{options_.shard ? unit.shard : unit.elements}, Element::float32};
    };
    for (const FlatUnit& unit : units_) parts_.push_back(f_.argument(type(unit), -1, by_rows(type(unit))));
    int result = 0;
    for (const FlatUnit& unit : units_)
      if (unit.trained && !options_.forward_only)
        sums_.push_back(f_.argument(type(unit), result++, by_rows(type(unit))));
    if (!options_.forward_only) loss_ = f_.argument({{}, Element::float32}, result, whole());
    for (const ValueId id : graph_.inputs) {
      const hlo::Type given = type_of(graph_.values[static_cast<std::size_t>(id)]);
      value(id) = f_.argument(given, -1, by_rows(given));
    }
  }
  void add_constants() {
    for (const auto& [id, tensor] : graph_.constants) {
      const bool uniform = tensor.numel() > 0 && tensor.eq(tensor.flatten()[0]).all().item<bool>();
      if (tensor.numel() <= most_literal_elements || uniform) {
        value(id) = literal_of(f_, tensor);
        continue;
      }
      value(id) = f_.argument({tensor.sizes().vec(), element_of(tensor.scalar_type())}, -1, whole());
      result_.constants.push_back(tensor);
    }
  }

  void add_draws() {
    if (graph_.draws.empty()) return;
    result_.draws = graph_.draws;
    std::int64_t lines = 0;
    for (const Draw& draw : graph_.draws) lines += hlo::Type{draw.lines, Element::int32}.elements();
    const Value all = f_.argument({{2 * lines}, Element::int32}, -1, whole());
    std::int64_t begin = 0;
    for (const Draw& draw : graph_.draws) {
      const std::int64_t count = hlo::Type{draw.lines, Element::int32}.elements();
      value(draw.low) = hlo::reshape(f_, hlo::slice(f_, all, 0, begin, begin + count), draw.lines);
      value(draw.high) = hlo::reshape(f_, hlo::slice(f_, all, 0, lines + begin, lines + begin + count), draw.lines);
      begin += count;
    }
  }

  // ---- annotations of a global program ----
  hlo::Sharding by_rows(const hlo::Type& type) const {
    return options_.global ? hlo::by_rows(type.sizes.size(), options_.devices) : hlo::Sharding();
  }
  hlo::Sharding whole() const { return options_.global ? hlo::replicated(options_.devices) : hlo::Sharding(); }
  /// Only outputs that can be divided evenly: dimension 0 of the others is not that of rows.
  void annotate_outputs(const Node& node) {
    for (const ValueId id : node.results) {
      if (!outputs_of_layers_.contains(id)) continue;
      const hlo::Type& type = value(id).type;
      if (!type.sizes.empty() && type.sizes.front() % options_.devices == 0)
        value(id) = hlo::annotate(f_, value(id), by_rows(type));
    }
  }

  // ---- parameters ----
  /// Returns the unit's part behind a barrier with the latest value; later reads of that value go through the same
  /// barrier.
  Value part_after_latest(std::size_t u) {
    if (latest_ == no_value || options_.devices == 1 || !options_.shard) return parts_[u];
    std::vector<Value> before = {parts_[u], value(latest_)};
    for (const std::size_t other : waited_for_) before.push_back(reduced_[other]);
    const std::vector<Value> behind = hlo::barrier(f_, before);
    value(latest_) = behind[1];
    for (std::size_t i = 0; i < waited_for_.size(); ++i) reduced_[waited_for_[i]] = behind[2 + i];
    waited_for_.clear();
    return behind[0];
  }
  void gather(std::size_t u) {
    const FlatUnit& unit = units_[u];
    if (options_.global) {
      value(static_cast<ValueId>(unit.parameters.front())) = parts_[u];
      return;
    }
    Value flat = part_after_latest(u);
    if (options_.shard) flat = hlo::all_gather(f_, flat, options_.devices);
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
      const auto id = static_cast<ValueId>(unit.parameters[i]);
      const hlo::Type type = type_of(graph_.values[static_cast<std::size_t>(id)]);
      const Value piece = hlo::slice(f_, flat, 0, unit.offsets[i], unit.offsets[i] + type.elements());
      value(id) = hlo::reshape(f_, piece, type.sizes);
    }
  }
  bool gathers_again(bool backward) const {
    return backward && options_.shard && !options_.global && options_.reshard_after_forward && options_.devices > 1;
  }
  void gather_for(ValueId id, bool backward) {
    const std::size_t u = unit_of_[static_cast<std::size_t>(id)];
    if ((gathers_again(backward) ? gathered_again_ : gathered_).insert(u).second) gather(u);
  }
  /// Makes the parameters that `node` reads available: as gathered for forward or, in backward, gathered again. Views
  /// and casts of parameters, which autograd keeps from forward, are also computed again, so that they do not keep the
  /// first gathered copy alive.
  void gather_what_is_read(const Node& node, bool backward) {
    each_read(node, [&](ValueId id) {
      if (is_parameter(id)) return gather_for(id, backward);
      const auto derived = of_parameters_.find(id);
      if (derived == of_parameters_.end() || !gathers_again(backward) || !derived_again_.insert(id).second) return;
      gather_what_is_read(*derived->second, backward);
      lower(*derived->second, values_);
    });
  }
  /// Finds forward nodes that read only parameters.
  void find_derived() {
    for (const Node& node : graph_.nodes) {
      if (node.backward) continue;
      bool only = true, any = false;
      each_read(node, [&](ValueId id) {
        any = true;
        only = only && (is_parameter(id) || of_parameters_.contains(id));
      });
      if (!any || !only) continue;
      for (const ValueId id : node.results)
        if (id != no_value) of_parameters_[id] = &node;
    }
  }

  // ---- recomputation ----
  /// Consecutive forward operators of one unit.
  struct Segment {
    std::vector<const Node*> nodes;
    bool recomputed = false;
  };
  void find_segments() {
    segment_of_.assign(graph_.values.size(), no_unit);
    std::size_t layer_before = no_unit;
    for (const Node& node : graph_.nodes) {
      if (node.backward) continue;
      const std::size_t unit =
          node.last_parameter < 0 ? no_unit : unit_of_[static_cast<std::size_t>(node.last_parameter)];
      const std::size_t now = unit == no_unit ? no_unit : units_[unit].layer;
      if (segments_.empty() || now != layer_before) segments_.emplace_back();
      layer_before = now;
      segments_.back().nodes.push_back(&node);
      each_read(node, [&](ValueId id) {
        const std::size_t of = segment_of_[static_cast<std::size_t>(id)];
        if (of != no_unit && of != segments_.size() - 1) outputs_of_layers_.insert(id);
      });
      const bool layer = unit != no_unit && !units_[unit].root;
      for (const ValueId id : node.results)
        if (id != no_value && layer) segment_of_[static_cast<std::size_t>(id)] = segments_.size() - 1;
    }
  }
  void recompute_what_is_read(const Node& node) {
    each_read(node, [&](ValueId id) {
      const std::size_t s = segment_of_[static_cast<std::size_t>(id)];
      if (s != no_unit && !segments_[s].recomputed) recompute(segments_[s]);
    });
  }
  /// Recomputes a segment from its inputs, behind a barrier with the latest value of backward.
  void recompute(Segment& segment) {
    segment.recomputed = true;
    std::set<ValueId> made, read;
    for (const Node* const node : segment.nodes) {
      gather_what_is_read(*node, /*backward=*/true);
      each_read(*node, [&](ValueId id) {
        if (!made.contains(id) && !is_parameter(id)) read.insert(id);
      });
      made.insert(node->results.begin(), node->results.end());
    }
    read.insert(latest_);
    std::vector<Value> inputs;
    for (const ValueId id : read) inputs.push_back(value(id));
    const std::vector<Value> behind = hlo::barrier(f_, inputs);
    std::vector<Value> table = values_;
    std::size_t i = 0;
    for (const ValueId id : read) table[static_cast<std::size_t>(id)] = behind[i++];
    value(latest_) = table[static_cast<std::size_t>(latest_)];
    for (const Node* const node : segment.nodes) lower(*node, table);
    for (const ValueId id : made)
      if (id != no_value) value(id) = table[static_cast<std::size_t>(id)];
  }

  // ---- operators and results ----
  void lower(const Node& node, std::vector<Value>& table) {
    NodeLowering lowering(f_, graph_, node, table);
    rule_of(node)(lowering);
  }
  /// Counts the gradients of each unit that are not computed yet; parameters without a gradient do not count.
  void count_gradients() {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      missing_.push_back(0);
      for (const std::size_t p : units_[u].parameters)
        if (const ValueId id = graph_.outputs[1 + p]; id != no_value && units_[u].trained) {
          ++missing_[u];
          gradient_of_[id].push_back(u);
        }
    }
    reduced_.resize(units_.size());
  }
  /// If `node` computed the last gradient of a unit, sums the unit's gradients over the devices at once. The next
  /// gather waits for that, so that few complete gradients exist at a time.
  void reduce_what_is_complete(const Node& node) {
    for (const ValueId id : node.results) {
      const auto found = gradient_of_.find(id);
      if (found == gradient_of_.end()) continue;
      for (const std::size_t u : found->second)
        if (--missing_[u] == 0) reduce(u);
    }
  }
  void reduce(std::size_t u) {
    const FlatUnit& unit = units_[u];
    if (options_.global) {
      const hlo::Type type{unit.sizes, Element::float32};
      const ValueId id = graph_.outputs[1 + unit.parameters.front()];
      reduced_[u] = hlo::annotate(f_, id == no_value ? hlo::constant(f_, 0, type) : value(id), by_rows(type));
      return;
    }
    std::vector<Value> pieces;
    for (const std::size_t p : unit.parameters) {
      const ValueId id = graph_.outputs[1 + p];
      const std::int64_t elements = type_of(graph_.values[p]).elements();
      pieces.push_back(id == no_value ? hlo::constant(f_, 0, {{elements}, Element::float32})
                                      : hlo::reshape(f_, value(id), {elements}));
    }
    Value flat = hlo::concatenate(f_, pieces, 0);
    if (options_.shard) {
      flat = hlo::pad(f_, flat, 0, 0, 0, unit.shard * options_.devices - unit.elements);
      flat = hlo::reduce_scatter(f_, flat, options_.devices);
      waited_for_.push_back(u);
    }
    reduced_[u] = flat;
  }
  void add_results() {
    if (options_.forward_only) return f_.result(value(graph_.outputs.front()), whole());
    std::size_t sum = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].trained) continue;
      if (reduced_[u].name.empty()) reduce(u);  // the step does not use the unit
      f_.result(hlo::binary(f_, "add", sums_[sum++], reduced_[u]), by_rows(reduced_[u].type));
    }
    f_.result(hlo::binary(f_, "add", loss_, value(graph_.outputs.front())), whole());
  }

  const Graph& graph_;
  const std::vector<FlatUnit>& units_;
  GradientOptions options_;
  hlo::Function f_;
  GradientProgram result_;
  std::vector<Value> values_;        // by id, the latest version of each
  std::vector<Value> parts_, sums_;  // parts_: by unit; sums_: by trained unit
  Value loss_;
  std::vector<std::size_t> unit_of_;  // by parameter
  std::set<std::size_t> gathered_, gathered_again_;
  std::map<ValueId, const Node*> of_parameters_;  // result -> its node, for nodes that read only parameters
  std::set<ValueId> derived_again_;
  ValueId latest_ = no_value;
  std::vector<int> missing_;                                 // by unit: gradients not computed yet
  std::map<ValueId, std::vector<std::size_t>> gradient_of_;  // units
  std::vector<Value> reduced_;                               // by unit
  std::vector<std::size_t> waited_for_;                      // units whose sums the next gather waits for
  std::vector<Segment> segments_;
  std::vector<std::size_t> segment_of_;  // by value; no_unit: not recomputed
  std::set<ValueId> outputs_of_layers_;  // read by later segments
};

}  // namespace

GradientProgram gradient_program(const Graph& graph, const std::vector<FlatUnit>& units,
                                 const GradientOptions& options) {
  check_rules(graph);
  return GradientBuilder(graph, units, options).build();
}

}  // namespace tessera::xla
