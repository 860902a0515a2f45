// The engine's reports about itself: buckets, units, bytes, and the location of a parameter.
#include <tessera/parallel/sharding/engine.h>

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <set>
#include <string>

namespace tessera {

using parallel::FlatGroup;
using parallel::NamedTensor;

std::vector<std::vector<std::string>> Sharded::Impl::buckets() const {
  return gradients_ ? gradients_->buckets() : std::vector<std::vector<std::string>>();
}

std::vector<ShardingUnit> Sharded::Impl::table() const {
  std::vector<ShardingUnit> rows;
  for (std::size_t unit = 0; unit < plan_.units.size(); ++unit) {
    ShardingUnit row{.name = plan_.units[unit].name};
    for (const std::size_t g : plan_.units[unit].groups) {
      const FlatGroup& group = *groups_[g];
      for (const FlatGroup::Member& m : group.members()) row.parameters.push_back(m.name);
      row.numel += group.numel();
      row.padded += group.flat_layout().padded;
      row.shard_bytes += static_cast<std::int64_t>(group.shard().nbytes());
      row.present_bytes += group.flat_layout().padded * static_cast<std::int64_t>(c10::elementSize(group.dtype()));
    }
    const auto& order = residency_->forward_order();
    const auto place = std::find(order.begin(), order.end(), unit);
    if (place != order.end() && place + 1 != order.end()) row.prefetch = plan_.units[*(place + 1)].name;
    rows.push_back(std::move(row));
  }
  return rows;
}

ShardingMemory Sharded::Impl::memory() const {
  using parallel::BufferUse;
  ShardingMemory result;
  for (const auto& group : groups_)
    result.shards += group->stays_whole() ? static_cast<std::int64_t>(group->whole().nbytes())
                                          : static_cast<std::int64_t>(group->shard().nbytes());
  const auto add_plain = [&](const NamedTensor& p) { result.shards += static_cast<std::int64_t>(p.tensor.nbytes()); };
  // Parameters in no group, such as frozen ones where only gradients are divided, are whole on every rank.
  std::set<std::string> grouped;
  for (const auto& group : groups_)
    for (const FlatGroup::Member& m : group->members()) grouped.insert(m.name);
  for (const NamedTensor& p : parameters_.parameters)
    if (plain() || !grouped.contains(p.name)) add_plain(p);
  if (gradients_) result.gradients = gradients_->shard_bytes();
  if (plain())
    for (const ShardedParameter& p : local_)
      if (p.local.grad().defined()) result.gradients += static_cast<std::int64_t>(p.local.grad().nbytes());
  const parallel::BufferPool& pool = context_.pool;
  result.whole = pool.in_use(BufferUse::whole_parameters);
  result.whole_peak = pool.peak(BufferUse::whole_parameters);
  result.flat_gradients = pool.in_use(BufferUse::gradients) + pool.in_use(BufferUse::shards);
  result.flat_gradients_peak = pool.peak(BufferUse::gradients) + pool.peak(BufferUse::shards);
  result.pool = pool.unused();
  result.offloaded = offloaded_bytes_;
  return result;
}

std::vector<std::size_t> Sharded::Impl::units_with(const std::vector<std::string>& names) const {
  std::set<std::size_t> units;
  if (names.empty())
    for (std::size_t unit = 0; unit < plan_.units.size(); ++unit) units.insert(unit);
  for (const std::string& name : names) {
    bool found = false;
    std::vector<std::string> known;
    for (const auto& group : groups_)
      for (const FlatGroup::Member& m : group->members()) {
        known.push_back(m.name);
        if (m.name != name) continue;
        units.insert(group->unit());
        found = true;
      }
    for (const NamedTensor& p : parameters_.parameters) found = found || p.name == name;  // an unmanaged parameter
    if (!found) {
      const auto near = nearest(name, known);
      throw InputError(concat("sharding: the module has no parameter '", name, "'",
                              near ? concat("; did you mean '", *near, "'?") : ""));
    }
  }
  return {units.begin(), units.end()};
}

}  // namespace tessera
