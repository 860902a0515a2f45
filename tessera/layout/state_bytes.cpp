#include <tessera/layout/state_bytes.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <map>

namespace tessera::layout {
namespace {

/// A set of parameters in one flat buffer.
struct Group {
  std::vector<std::size_t> parameters;
  bool trained, stays_whole, root;
};

std::int64_t sum(const std::vector<std::int64_t>& values, std::size_t most) {
  std::vector<std::int64_t> sorted = values;
  std::sort(sorted.rbegin(), sorted.rend());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < std::min(most, sorted.size()); ++i) total += sorted[i];
  return total;
}

std::vector<Group> by_units(const ModuleTree& tree, const std::vector<bool>& trained,
                            const StateBytesOptions& options) {
  std::vector<Group> groups;
  const auto add = [&](const std::vector<std::size_t>& parameters, bool whole, bool root) {
    std::map<std::pair<std::int64_t, bool>, std::vector<std::size_t>> kinds;
    for (const std::size_t p : parameters) kinds[{tree.parameters[p].element_size, trained[p]}].push_back(p);
    for (auto& [kind, members] : kinds) groups.push_back({std::move(members), kind.second, whole, root});
  };
  std::vector<std::size_t> small;
  for (const Unit& unit : make_units(tree, options.wrap)) {
    std::vector<std::size_t> large;
    for (const std::size_t p : unit.parameters)
      (tree.parameters[p].numel() <= options.persistence_threshold ? small : large).push_back(p);
    add(large, false, unit.module == 0);
  }
  add(small, true, false);
  return groups;
}

std::vector<Group> by_buckets(const ModuleTree& tree, const std::vector<bool>& trained,
                              const StateBytesOptions& options) {
  std::vector<std::size_t> order;
  for (std::size_t p = tree.parameters.size(); p-- > 0;)
    if (trained[p]) order.push_back(p);
  std::vector<Group> groups;
  for (auto& bucket : assign_buckets(tree.parameters, order, options.first_bucket_bytes, options.bucket_bytes))
    groups.push_back({std::move(bucket), true, true, false});
  return groups;
}

}  // namespace

StateBytes state_bytes(const ModuleTree& tree, const std::vector<bool>& trained, const StateBytesOptions& options) {
  TESSERA_CHECK(trained.size() == tree.parameters.size(), trained.size(), " flags for ", tree.parameters.size(),
                " parameters");
  const bool divides = options.shard_ranks > 1 && options.strategy.shard_optimizer;
  const std::vector<Group> groups = options.strategy.shard_parameters && divides ? by_units(tree, trained, options)
                                                                                 : by_buckets(tree, trained, options);
  StateBytes bytes;
  std::vector<bool> covered(tree.parameters.size(), false);
  std::vector<std::int64_t> whole, flat;  // bytes of gathered units, and of their gradients
  std::int64_t root = 0, root_gradients = 0, trained_here = 0, all_whole = 0;
  for (const Group& group : groups) {
    const FlatLayout layout = make_flat_layout(tree.parameters, group.parameters, divides ? options.shard_ranks : 1);
    const std::int64_t element = tree.parameters[group.parameters.front()].element_size;
    const std::int64_t whole_element = options.whole_element > 0 ? options.whole_element : element;
    const Range held = shard_range(layout, divides ? options.rank : 0);
    for (const Segment& segment : layout.segments) {
      covered[segment.parameter] = true;
      const Range part = intersect({segment.offset, segment.offset + segment.numel}, held);
      if (group.trained) trained_here += part.end - part.begin;
      if (!divides) bytes.parameters += segment.numel * element;
      if (!divides && group.trained) bytes.gradients += segment.numel * element;
    }
    const std::int64_t whole_bytes = layout.padded * whole_element;
    const std::int64_t wire_bytes =
        layout.padded * std::max(options.wire_element, whole_element == 8 ? whole_element : options.wire_element);
    if (!divides) continue;
    if (group.stays_whole) bytes.parameters += whole_bytes;
    if (!group.stays_whole || whole_element != element) bytes.parameters += layout.shard_numel() * element;
    if (group.trained) bytes.gradients += layout.shard_numel() * element;
    if (!group.stays_whole) (group.root ? root : all_whole) += whole_bytes;
    if (!group.stays_whole && !group.root) whole.push_back(whole_bytes);
    if (!group.trained) continue;
    if (group.root)
      root_gradients += wire_bytes;
    else
      flat.push_back(wire_bytes);
  }
  for (std::size_t p = 0; p < covered.size(); ++p)
    if (!covered[p]) bytes.parameters += tree.parameters[p].bytes();  // frozen, or ignored
  bytes.optimizer = static_cast<std::int64_t>(options.optimizer_per_element * static_cast<double>(trained_here));
  if (!divides) return bytes;
  const bool keeps_whole_gradients = !options.strategy.shard_gradients && options.accumulates;
  bytes.buffers = root + (options.strategy.reshard_after_forward ? sum(whole, 3) : all_whole) + root_gradients +
                  sum(flat, keeps_whole_gradients ? flat.size() : 2);
  if (options.accumulates && !keeps_whole_gradients)  // a reduced gradient before it is accumulated
    bytes.buffers += std::max(root_gradients, sum(flat, 1)) / options.shard_ranks;
  return bytes;
}

std::int64_t activation_bytes(const DecoderShape& shape, std::int64_t tokens, std::int64_t checkpointed) {
  const std::int64_t block =
      5 * shape.width + shape.width + 2 * shape.key_value_width + (shape.gated ? 3 : 2) * shape.inner;
  const std::int64_t kept = shape.blocks - checkpointed + (checkpointed > 0 ? 1 : 0);
  return 4 * tokens * (kept * block + checkpointed * shape.width + 4 * shape.width);
}

}  // namespace tessera::layout
