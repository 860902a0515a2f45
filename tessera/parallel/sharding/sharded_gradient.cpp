#include <tessera/parallel/sharding/sharded_gradient.h>

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/parallel/sharding/gradient_checks.h>

#include <algorithm>

namespace tessera::parallel {
namespace {

at::ScalarType wire_dtype(const FlatGroup& group, std::optional<at::ScalarType> reduce_dtype) {
  if (group.dtype() == at::kDouble || !at::isFloatingType(group.dtype())) return group.dtype();
  return reduce_dtype.value_or(at::kFloat);
}

}  // namespace

ShardedGradient::ShardedGradient(ShardingContext& context, FlatGroup& group, std::optional<at::ScalarType> reduce_dtype,
                                 bool fixed_order, std::size_t first_index)
    : FlatGradient({.all = context.data_parallel, .shards = context.shards, .copies = context.copies}),
      context_(context),
      group_(group),
      wire_dtype_(wire_dtype(group, reduce_dtype)),
      fixed_order_(fixed_order),
      filled_(group.members().size(), false),
      in_sum_(group.members().size(), false) {
  unit_ = group.unit();
  std::vector<at::Tensor> parameters;
  for (const FlatGroup::Member& m : group.members()) {
    members_.push_back(
        {m.name, m.parameter, first_index + members_.size(), group.dtype(), m.parameter.device(), m.sizes});
    segments_.push_back({m.sizes, m.offset, m.numel});
    parameters.push_back(m.parameter);
  }
  moved_ = std::make_unique<MovedGradients>(std::move(parameters));
}

void ShardedGradient::begin(bool) { moved_->take(); }

void ShardedGradient::take_buffer() {
  buffer_ = context_.pool.take(group_.flat_layout().padded, wire_dtype_, BufferUse::gradients);
}

bool ShardedGradient::take(std::size_t m, bool check_finite) {
  const FlatGroup::Member& member = group_.members()[m];
  at::Tensor& grad = member.parameter.mutable_grad();
  if (!buffer_.defined()) take_buffer();
  const at::Tensor place = buffer_.narrow(0, member.offset, member.numel).view(member.sizes);
  bool finite = true;
  if (filled_[m])
    place.add_(grad);
  else
    finite = copy_checked(place, grad, check_finite);
  filled_[m] = true;
  grad.reset();
  return finite;
}

/// Memory for the sums, zero where nothing counts yet.
void ShardedGradient::prepare_sum() {
  if (!sum_.defined())
    sum_ = comm::zeros_shared(context_.shards, {group_.flat_layout().shard_numel()},
                              at::TensorOptions(group_.shard_dtype()).device(group_.shard().device()));
  for (std::size_t m = 0; m < in_sum_.size(); ++m)
    if (!group_.members()[m].local.grad().defined()) in_sum_[m] = false;  // an optimizer's own zero_grad()
}

void ShardedGradient::zero_what_does_not_count() {
  for (std::size_t m = 0; m < in_sum_.size(); ++m)
    if (!in_sum_[m]) group_.part_of(sum_, m).zero_();
}

Passing ShardedGradient::close() {
  if (!buffer_.defined()) take_buffer();
  std::int64_t end = 0;  // behind the last element that is defined
  for (std::size_t m = 0; m < filled_.size(); ++m) {
    const FlatGroup::Member& member = group_.members()[m];
    if (member.offset > end) buffer_.narrow(0, end, member.offset - end).zero_();  // padding
    if (!filled_[m]) buffer_.narrow(0, member.offset, member.numel).zero_();
    end = member.offset + member.numel;
  }
  if (buffer_.numel() > end) buffer_.narrow(0, end, buffer_.numel() - end).zero_();
  prepare_sum();
  if (fixed_order_) {
    zero_what_does_not_count();
    result_ = sum_;
  } else {
    // With nothing in the sum yet, the reduction writes there.
    const bool fresh = std::none_of(in_sum_.begin(), in_sum_.end(), [](bool in) { return in; });
    const bool straight = fresh && buffer_.scalar_type() == sum_.scalar_type() && buffer_.device() == sum_.device();
    result_ = straight
                  ? sum_
                  : context_.pool.take(group_.flat_layout().shard_numel(), buffer_.scalar_type(), BufferUse::gradients);
  }
  return {.key = group_.name(),
          .tag = concat("reduce ", group_.name()),
          .flat = buffer_,
          .message = {},
          .result = result_,
          .sum = sum_,
          .segments = &segments_};
}

void ShardedGradient::reduced() {
  if (!result_.is_same(sum_)) {
    zero_what_does_not_count();
    sum_.add_(result_);
    context_.pool.give(std::move(result_), BufferUse::gradients);
  }
  result_.reset();
  context_.pool.give(std::move(buffer_), BufferUse::gradients);
  buffer_.reset();
}

void ShardedGradient::show(std::size_t m, bool used) {
  if (!used && !in_sum_[m]) return;  // nobody used it: no gradient
  in_sum_[m] = true;
  at::Tensor& grad = group_.members()[m].local.mutable_grad();
  if (!grad.defined()) grad = group_.part_of(sum_, m);
  moved_->put(m);
}

void ShardedGradient::end(bool was_reduced) {
  if (was_reduced) std::fill(filled_.begin(), filled_.end(), false);
}

void ShardedGradient::forget_gradients() {
  moved_->take();
  for (const FlatGroup::Member& member : group_.members()) {
    member.parameter.mutable_grad().reset();
    member.local.mutable_grad().reset();
  }
  std::fill(filled_.begin(), filled_.end(), false);
  std::fill(in_sum_.begin(), in_sum_.end(), false);
}

void ShardedGradient::fail() noexcept {
  forget_gradients();
  // A reduction that is still under way keeps its memory alive by itself; ours is let go, not reused.
  buffer_.reset();
  result_.reset();
  sum_.reset();
}

void ShardedGradient::zero_grad() {
  forget_gradients();
  if (!buffer_.defined()) return;
  context_.pool.give(std::move(buffer_), BufferUse::gradients);  // what paused backwards left
  buffer_.reset();
}

void ShardedGradient::scale_unreduced(double factor) {
  for (std::size_t m = 0; m < filled_.size(); ++m)
    if (filled_[m]) buffer_.narrow(0, group_.members()[m].offset, group_.members()[m].numel).mul_(factor);
}

}  // namespace tessera::parallel
