#include <tessera/parallel/sharding/gradient_reduction.h>

#include <ATen/ATen.h>
#include <tessera/comm/recorder.h>

#include <utility>

namespace tessera::parallel {

/// With a predivide factor, a mean is a sum that is divided by the remaining factor afterwards.
comm::Reduction GradientReduction::wire_op() const {
  return options_.predivide_factor != 1 ? comm::Reduction::sum : options_.op;
}

void GradientReduction::start(const ReductionOptions& options, const GradientGroups& groups, GradientMessage message) {
  options_ = options;
  groups_ = groups;
  message_ = std::move(message);
  under_way_ = true;
  if (options_.fixed_order()) {
    if (options_.op == comm::Reduction::mean) message_.flat.mul_(1.0 / static_cast<double>(options_.logical_shards));
    stages_ = {Stage::accumulate};
  } else {
    if (options_.predivide_factor != 1) message_.flat.mul_(1.0 / options_.predivide_factor);
    if (!message_.scattered())
      stages_ = {Stage::all_reduce};
    else if (groups_.replicas.size() > 1)
      stages_ = {Stage::reduce_scatter, Stage::all_reduce};
    else
      stages_ = {Stage::reduce_scatter};
    if (groups_.expert_replicas) {
      if (!message_.scattered() && groups_.all.size() == 1) stages_.clear();
      stages_.push_back(Stage::expert_replicas);
    }
  }
  advance();
}

void GradientReduction::advance() {
  wait();
  if (stages_.empty()) return;
  const Stage stage = stages_.front();
  stages_.erase(stages_.begin());
  run(stage);
}

void GradientReduction::wait() {
  work_.wait();
  counters_.wait();
  work_ = counters_ = {};
}

void GradientReduction::run(Stage stage) {
  const comm::Tag tag(message_.tag);
  if (stage == Stage::accumulate) return accumulate();
  if (stage == Stage::expert_replicas) {
    work_ = groups_.expert_replicas.all_reduce(message_.scattered() ? message_.result : message_.message, wire_op());
    return;
  }
  const bool scatter = stage == Stage::reduce_scatter;
  const comm::Group& group = scatter ? groups_.shards : message_.scattered() ? groups_.replicas : groups_.all;
  const at::Tensor& input = scatter || !message_.scattered() ? message_.flat : message_.result;
  const at::Tensor& output = message_.scattered() ? message_.result : message_.flat;
  // Only the first stage is compressed, not the sums over replicas after a scatter.
  const bool first = scatter ? group.size() > 1 : !message_.scattered() || groups_.shards.size() == 1;
  const bool compress = options_.compression && first;
  if (compress) {
    work_ = options_.compression->reduce({message_.key, input, *message_.segments, group, wire_op(), output, scatter});
    if (message_.message.defined())
      counters_ = group.all_reduce(message_.message.narrow(0, input.numel(), message_.message.numel() - input.numel()),
                                   wire_op());
  } else if (scatter) {
    work_ = group.reduce_scatter(output, input, wire_op());
  } else {
    work_ = group.all_reduce(message_.scattered() ? output : message_.message, wire_op());
  }
}

/// sum = ((sum + x_0) + x_1) + ... in the rank order of `all`. The micro-batches of the next expert replica follow in
/// the same way: gradients of experts are local (`later_sources`); other sums are sent to that rank.
void GradientReduction::accumulate() {
  const at::Tensor& own = message_.scattered() ? message_.flat : message_.message;
  if (groups_.expert_replicas) {
    for (int place = 0; place < groups_.expert_replicas.size(); ++place) {
      if (place == groups_.expert_replicas.rank()) add_to_sum(own).wait();
      groups_.expert_replicas.broadcast(message_.sum, place).wait();
    }
    return;
  }
  work_ = add_to_sum(own);
  for (const at::Tensor& later_source : message_.later_sources) {
    work_.wait();
    work_ = add_to_sum(later_source);
  }
}

/// Adds x_0, x_1, ... of the ranks of `all` to the sum. With replicas the sum of scattered gradients passes from one
/// shard group to the next, and each adds its own ranks' parts.
comm::Work GradientReduction::add_to_sum(const at::Tensor& flat_or_message) {
  if (!message_.scattered()) return groups_.all.accumulate(message_.sum, flat_or_message);
  for (int replica = 0; replica < groups_.replicas.size(); ++replica) {
    if (replica == groups_.replicas.rank()) groups_.shards.accumulate_scatter(message_.sum, flat_or_message).wait();
    if (groups_.replicas.size() > 1) groups_.replicas.broadcast(message_.sum, replica).wait();
  }
  return {};
}

void GradientReduction::finish() {
  if (!under_way_) return;
  while (!stages_.empty()) advance();
  wait();
  under_way_ = false;
  if (options_.predivide_factor != 1) {
    const int over = options_.op == comm::Reduction::mean ? groups_.all.size() : 1;
    (message_.scattered() ? message_.result : message_.flat).mul_(options_.predivide_factor / over);
  }
  message_ = {};  // releases the buffers
}

}  // namespace tessera::parallel
