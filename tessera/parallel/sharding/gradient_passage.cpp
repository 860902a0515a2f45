#include <tessera/parallel/sharding/gradient_passage.h>

#include <ATen/ATen.h>
#include <tessera/comm/recorder.h>

#include <utility>

namespace tessera::parallel {

/// With a factor of its own, a mean is a sum and the rest of the division.
comm::Reduction GradientPassage::reduction() const {
  return options_.predivide_factor != 1 ? comm::Reduction::sum : options_.reduction;
}

void GradientPassage::start(const PassageOptions& options, const GradientGroups& groups, Passing passing) {
  options_ = options;
  groups_ = groups;
  passing_ = std::move(passing);
  under_way_ = true;
  if (options_.fixed_order()) {
    if (options_.reduction == comm::Reduction::mean)
      passing_.flat.mul_(1.0 / static_cast<double>(options_.logical_shards));
    stages_ = {Stage::accumulate};
  } else {
    if (options_.predivide_factor != 1) passing_.flat.mul_(1.0 / options_.predivide_factor);
    if (!passing_.scattered())
      stages_ = {Stage::all_reduce};
    else if (groups_.copies.size() > 1)
      stages_ = {Stage::reduce_scatter, Stage::all_reduce};
    else
      stages_ = {Stage::reduce_scatter};
    if (groups_.beyond) {
      if (!passing_.scattered() && groups_.all.size() == 1) stages_.clear();
      stages_.push_back(Stage::beyond);
    }
  }
  advance();
}

void GradientPassage::advance() {
  wait();
  if (stages_.empty()) return;
  const Stage stage = stages_.front();
  stages_.erase(stages_.begin());
  run(stage);
}

void GradientPassage::wait() {
  work_.wait();
  counters_.wait();
  work_ = counters_ = {};
}

void GradientPassage::run(Stage stage) {
  const comm::Tag tag(passing_.tag);
  if (stage == Stage::accumulate) return accumulate();
  if (stage == Stage::beyond) {
    work_ = groups_.beyond.all_reduce(passing_.scattered() ? passing_.result : passing_.message, reduction());
    return;
  }
  const bool scatter = stage == Stage::reduce_scatter;
  const comm::Group& group = scatter ? groups_.shards : passing_.scattered() ? groups_.copies : groups_.all;
  const at::Tensor& input = scatter || !passing_.scattered() ? passing_.flat : passing_.result;
  const at::Tensor& output = passing_.scattered() ? passing_.result : passing_.flat;
  // Compressed is what passes first; the sums that pass from copy to copy after a scatter are not.
  const bool first = scatter ? group.size() > 1 : !passing_.scattered() || groups_.shards.size() == 1;
  const bool compress = options_.compression && first;
  if (compress) {
    work_ =
        options_.compression->reduce({passing_.key, input, *passing_.segments, group, reduction(), output, scatter});
    if (passing_.message.defined())
      counters_ = group.all_reduce(passing_.message.narrow(0, input.numel(), passing_.message.numel() - input.numel()),
                                   reduction());
  } else if (scatter) {
    work_ = group.reduce_scatter(output, input, reduction());
  } else {
    work_ = group.all_reduce(passing_.scattered() ? output : passing_.message, reduction());
  }
}

/// sum = ((sum + x_0) + x_1) + ... in the order of the ranks of `all`; then the micro-batches of the next rank beyond
/// in the same way, which lie here (`further`), or there, so that the sum travels from one to the next.
void GradientPassage::accumulate() {
  const at::Tensor& own = passing_.scattered() ? passing_.flat : passing_.message;
  if (groups_.beyond) {
    for (int place = 0; place < groups_.beyond.size(); ++place) {
      if (place == groups_.beyond.rank()) add_to_sum(own).wait();
      groups_.beyond.broadcast(passing_.sum, place).wait();
    }
    return;
  }
  work_ = add_to_sum(own);
  for (const at::Tensor& further : passing_.further) {
    work_.wait();
    work_ = add_to_sum(further);
  }
}

/// x_0, x_1, ... of the ranks of `all` join the sum. That of scattered gradients with copies travels from one shard
/// group to the next, each adding its own ranks' parts.
comm::Work GradientPassage::add_to_sum(const at::Tensor& flat_or_message) {
  if (!passing_.scattered()) return groups_.all.accumulate(passing_.sum, flat_or_message);
  for (int copy = 0; copy < groups_.copies.size(); ++copy) {
    if (copy == groups_.copies.rank()) groups_.shards.accumulate_scatter(passing_.sum, flat_or_message).wait();
    if (groups_.copies.size() > 1) groups_.copies.broadcast(passing_.sum, copy).wait();
  }
  return {};
}

void GradientPassage::finish() {
  if (!under_way_) return;
  while (!stages_.empty()) advance();
  wait();
  under_way_ = false;
  if (options_.predivide_factor != 1) {
    const int over = options_.reduction == comm::Reduction::mean ? groups_.all.size() : 1;
    (passing_.scattered() ? passing_.result : passing_.flat).mul_(options_.predivide_factor / over);
  }
  passing_ = {};  // lets the buffers go
}

}  // namespace tessera::parallel
