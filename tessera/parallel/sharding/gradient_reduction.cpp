#include <tessera/parallel/sharding/gradient_reduction.h>

#include <ATen/ATen.h>
#include <tessera/comm/recorder.h>

#include <utility>

namespace tessera::parallel {

/// With a factor of its own, a mean is a sum and the rest of the division.
comm::Reduction GradientReduction::reduction() const {
  return options_.predivide_factor != 1 ? comm::Reduction::sum : options_.reduction;
}

void GradientReduction::start(const ReductionOptions& options, const GradientGroups& groups, GradientMessage passing) {
  options_ = options;
  groups_ = groups;
  message_ = std::move(passing);
  under_way_ = true;
  if (options_.fixed_order()) {
    if (options_.reduction == comm::Reduction::mean)
      message_.flat.mul_(1.0 / static_cast<double>(options_.logical_shards));
    stages_ = {Stage::accumulate};
  } else {
    if (options_.predivide_factor != 1) message_.flat.mul_(1.0 / options_.predivide_factor);
    if (!message_.scattered())
      stages_ = {Stage::all_reduce};
    else if (groups_.copies.size() > 1)
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
    work_ = groups_.expert_replicas.all_reduce(message_.scattered() ? message_.result : message_.message, reduction());
    return;
  }
  const bool scatter = stage == Stage::reduce_scatter;
  const comm::Group& group = scatter ? groups_.shards : message_.scattered() ? groups_.copies : groups_.all;
  const at::Tensor& input = scatter || !message_.scattered() ? message_.flat : message_.result;
  const at::Tensor& output = message_.scattered() ? message_.result : message_.flat;
  // Compressed is what passes first; the sums that pass from copy to copy after a scatter are not.
  const bool first = scatter ? group.size() > 1 : !message_.scattered() || groups_.shards.size() == 1;
  const bool compress = options_.compression && first;
  if (compress) {
    work_ =
        options_.compression->reduce({message_.key, input, *message_.segments, group, reduction(), output, scatter});
    if (message_.message.defined())
      counters_ = group.all_reduce(message_.message.narrow(0, input.numel(), message_.message.numel() - input.numel()),
                                   reduction());
  } else if (scatter) {
    work_ = group.reduce_scatter(output, input, reduction());
  } else {
    work_ = group.all_reduce(message_.scattered() ? output : message_.message, reduction());
  }
}

/// sum = ((sum + x_0) + x_1) + ... in the order of the ranks of `all`; then the micro-batches of the next rank beyond
/// in the same way, which lie here (`later_source`), or there, so that the sum travels from one to the next.
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
  for (const at::Tensor& later_source : message_.later_source) {
    work_.wait();
    work_ = add_to_sum(later_source);
  }
}

/// x_0, x_1, ... of the ranks of `all` join the sum. That of scattered gradients with copies travels from one shard
/// group to the next, each adding its own ranks' parts.
comm::Work GradientReduction::add_to_sum(const at::Tensor& flat_or_message) {
  if (!message_.scattered()) return groups_.all.accumulate(message_.sum, flat_or_message);
  for (int copy = 0; copy < groups_.copies.size(); ++copy) {
    if (copy == groups_.copies.rank()) groups_.shards.accumulate_scatter(message_.sum, flat_or_message).wait();
    if (groups_.copies.size() > 1) groups_.copies.broadcast(message_.sum, copy).wait();
  }
  return {};
}

void GradientReduction::finish() {
  if (!under_way_) return;
  while (!stages_.empty()) advance();
  wait();
  under_way_ = false;
  if (options_.predivide_factor != 1) {
    const int over = options_.reduction == comm::Reduction::mean ? groups_.all.size() : 1;
    (message_.scattered() ? message_.result : message_.flat).mul_(options_.predivide_factor / over);
  }
  message_ = {};  // lets the buffers go
}

}  // namespace tessera::parallel
