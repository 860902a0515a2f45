#include <tessera/parallel/sharding/sharded_gradient.h>

#include <ATen/ATen.h>
#include <tessera/base/text.h>
#include <tessera/comm/shared_memory.h>
#include <tessera/parallel/sharding/gradient_checks.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tessera::parallel {
namespace {

GradientGroups groups_of(const ShardingContext& context, const FlatGroup& group) {
  const bool shared = group.shared_by_experts();
  return {.all = context.data_parallel,
          .shards = context.shards,
          .replicas = context.replicas,
          .expert_replicas = shared ? context.expert_replicas : comm::Group(),
          .per_source = shared ? nullptr : context.per_source};
}

at::ScalarType dtype_to_reduce(const FlatGroup& group, std::optional<at::ScalarType> reduce_dtype) {
  if (group.dtype() == at::kDouble || !at::isFloatingType(group.dtype())) return group.dtype();
  return reduce_dtype.value_or(at::kFloat);
}

}  // namespace

ShardedGradient::ShardedGradient(ShardingContext& context, const FlatGroup& group,
                                 std::optional<at::ScalarType> reduce_dtype, bool fixed_order, std::size_t first_index)
    : FlatGradient(concat("unit '", group.name(), "'"), group.unit(), groups_of(context, group), fixed_order),
      context_(context),
      group_(group),
      reduce_dtype_(dtype_to_reduce(group, reduce_dtype)) {
  std::vector<at::Tensor> parameters;
  for (const FlatGroup::Member& m : group.members()) {
    members_.push_back({.name = m.name,
                        .parameter = m.parameter,
                        .index = first_index + members_.size(),
                        .shown = m.local,
                        .offset = m.offset,
                        .numel = m.numel});
    segments_.push_back({m.sizes, m.offset, m.numel});
    parameters.push_back(m.parameter);
  }
  moved_ = std::make_unique<MovedGradients>(std::move(parameters));
  if (!group.root()) context.pool.announce(group.flat_layout().padded, reduce_dtype_, BufferUse::gradients);
}

void ShardedGradient::begin_backward() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& m = members_[i];
    const MovedGradients::Found moved = moved_->take(i);
    m.hidden = moved == MovedGradients::Found::here;
    if (moved == MovedGradients::Found::gone) forget(m);  // removed by the module's own zero_grad()
    at::Tensor& grad = m.shown.mutable_grad();
    if (grad.defined() && !is_same_memory(grad, m.result)) {  // set by the user: later gradients are added to it
      prepare_sum();
      leave_sum();
      check_gradient(m.name, grad, m.result.scalar_type(), m.result.device(), m.result.sizes());
      m.result.copy_(grad);
      grad = m.result;
    }
    m.reduced = grad.defined();
  }
}

bool ShardedGradient::nothing_reduced() const {
  return std::none_of(members_.begin(), members_.end(), [](const Member& m) { return m.reduced; });
}

/// Whether a buffer taken now would be the sum itself.
bool ShardedGradient::fills_sum() const {
  return context_.shards.size() == 1 && !fixed_order_ && nothing_reduced() && reduce_dtype_ == group_.shard_dtype() &&
         group_.shard().device() == context_.shards.device();
}

void ShardedGradient::take_buffers() {
  if (buffer_.defined()) return;
  if (fills_sum()) {
    prepare_sum();
    buffer_ = sum_;
    return;
  }
  const auto taken = [this] {
    return context_.pool.take(group_.flat_layout().padded, reduce_dtype_, BufferUse::gradients);
  };
  buffer_ = taken();
  if (groups_.per_source)
    for (std::int64_t s = 1; s < groups_.per_source->sources(); ++s) later_sources_.push_back(taken());
}

void ShardedGradient::give_buffers() {
  if (!buffer_.is_same(sum_)) context_.pool.give(std::move(buffer_), BufferUse::gradients);
  buffer_.reset();
  for (at::Tensor& later_source : later_sources_) context_.pool.give(std::move(later_source), BufferUse::gradients);
  later_sources_.clear();
}

/// Moves unreduced gradients of paused backward passes from the sum into a buffer, since the sum gets its own
/// gradients.
void ShardedGradient::leave_sum() {
  if (!buffer_.defined() || !buffer_.is_same(sum_)) return;
  buffer_ = context_.pool.take(group_.flat_layout().padded, reduce_dtype_, BufferUse::gradients);
  buffer_.copy_(sum_);
}

bool ShardedGradient::take_gradient(std::size_t i, bool check_finite) {
  take_buffers();
  members_[i].hidden = true;
  return add_to_buffer(members_[i], check_finite);
}

/// Allocates the sum when it is first needed.
void ShardedGradient::prepare_sum() {
  if (!sum_.defined()) {
    sum_ = comm::zeros_shared(context_.shards, {group_.flat_layout().shard_numel()},
                              at::TensorOptions(group_.shard_dtype()).device(group_.shard().device()));
    if (context_.shards.size() > 1)
      locals_ = std::make_unique<LocalParts>(
          sum_, refuse_mixing(),
          "this gradient no longer exists: the backward that computed it failed, or its sharding object was destroyed");
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const at::Tensor part = group_.part_of(sum_, i);
      members_[i].result = locals_ ? locals_->watched(part) : part;
    }
  }
  for (Member& m : members_)
    m.reduced = m.reduced && m.shown.grad().defined();  // an optimizer's own zero_grad() may have removed it
}

void ShardedGradient::zero_padding() {
  const auto zero = [this](std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    buffer_.narrow(0, begin, end - begin).zero_();
    for (const at::Tensor& later_source : later_sources_) later_source.narrow(0, begin, end - begin).zero_();
  };
  std::int64_t end = 0;  // end of the last member so far
  for (const Member& m : members_) {
    zero(end, m.offset);
    end = m.offset + m.numel;
  }
  zero(end, buffer_.numel());
}

GradientMessage ShardedGradient::prepare_reduction() {
  take_buffers();
  prepare_sum();
  zero_padding();
  for (const Member& m : members_)
    if (!m.given) zero_in_buffer(m);
  if (fixed_order_) zero_results_without_reduction();
  // While the sum is empty, the reduction writes directly into it.
  const bool straight =
      nothing_reduced() && buffer_.scalar_type() == sum_.scalar_type() && buffer_.device() == sum_.device();
  if (fixed_order_ || straight)
    result_ = sum_;
  else if (context_.shards.size() == 1)
    result_ = buffer_;
  else
    result_ = context_.pool.take(group_.flat_layout().shard_numel(), buffer_.scalar_type(), BufferUse::shards);
  return {.key = group_.name(),
          .tag = concat("reduce ", group_.name()),
          .flat = buffer_,
          .message = {},
          .result = result_,
          .sum = sum_,
          .later_sources = later_sources_,
          .segments = &segments_};
}

void ShardedGradient::finish_reduction() {
  if (!result_.is_same(sum_)) {
    if (nothing_reduced()) {
      sum_.copy_(result_);  // offloaded parameters have their sum on the host
    } else {
      zero_results_without_reduction();
      sum_.add_(result_.to(sum_.device()));
    }
    if (!result_.is_same(buffer_)) context_.pool.give(std::move(result_), BufferUse::shards);
  }
  result_.reset();
  give_buffers();
}

void ShardedGradient::show(std::size_t i, bool used) {
  Member& m = members_[i];
  if (!used && !m.reduced) return;  // keeps its grad(), even if it is undefined
  m.reduced = true;
  m.hidden = false;
  at::Tensor& grad = m.shown.mutable_grad();
  if (!grad.defined()) grad = m.result;
  moved_->put(i);
}

void ShardedGradient::end_backward(bool was_reduced) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (was_reduced) members_[i].given = false;
    if (std::exchange(members_[i].hidden, false)) moved_->put(i);
  }
}

void ShardedGradient::abort_backward() noexcept {
  for (std::size_t i = 0; i < members_.size(); ++i) moved_->take(i);
  forget_gradients();
  if (groups_.per_source) groups_.per_source->clear();
  // A reduction in flight keeps its memory alive; ours is released, not reused.
  buffer_.reset();
  later_sources_.clear();
  result_.reset();
  sum_.reset();
  locals_.reset();
  for (Member& m : members_) m.result.reset();
}

void ShardedGradient::zero_grad() {
  for (std::size_t i = 0; i < members_.size(); ++i) moved_->take(i);
  forget_gradients();
  if (buffer_.defined()) give_buffers();  // left by paused backward passes
}

void ShardedGradient::scale_unreduced(double factor) {
  for (const Member& m : members_)
    if (m.given) place_of(buffer_, m).mul_(factor);
}

std::int64_t ShardedGradient::shard_bytes() const {
  return sum_.defined() ? static_cast<std::int64_t>(sum_.nbytes()) : 0;
}

}  // namespace tessera::parallel
